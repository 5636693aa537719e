-- Stores an answer in the transaction of its act. No row: another request with this key was faster, and
-- this transaction must not commit. Index: requests_pkey.
insert into requests (actor, key, sha256, status, body) values ($1, $2, $3, $4, $5)
on conflict do nothing
returning key
