-- The pool of operation keys: by these the tools know the calls, where an operator wants to say so beforehand.

-- A key that was ever loaded stays, so that loading it again changes nothing. A second use breaks the CHECK of
-- uses, and with it the transaction that tried: the last guard of "each key once". Not a hot table where there is
-- no pool; where there is, its rows are picked and marked in T1.
create table operation_keys (
    key          text primary key check (octet_length(key) between 16 and 256),
    uses         smallint not null default 0 check (uses in (0, 1)),
    wallet_id    text,
    operation_id uuid,
    loaded_at    timestamptz not null default now(),
    check ((wallet_id is not null) = (uses = 1)),
    check ((operation_id is not null) = (uses = 1))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index operation_keys_free on operation_keys (loaded_at, key) where uses = 0;
