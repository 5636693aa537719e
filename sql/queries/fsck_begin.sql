-- Opens fsck's one snapshot: everything it reads is of the same moment, beside running gateways.
begin isolation level repeatable read read only
