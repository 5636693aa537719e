-- The whole schema of the first version.
--
-- Hot tables (operations, holds, receipts, transfers, responses, signatures) are append-only or
-- insert-and-delete, narrow, and have no foreign keys: a foreign key takes a lock on the parent for
-- each child, which the hot wallet cannot afford. fsck proves what the keys would have said.
-- Each of their unique keys contains wallet_id, so that they can be distributed by wallet.

-- Facts made once: the installation's own id.
create table installation (
    one        smallint primary key check (one = 1),
    id         text not null,
    created_at timestamptz not null default now()
);

-- A running gateway. Its heartbeat is its lease; a zero heartbeat means "gone, recover at once".
create table instances (
    id           uuid primary key,
    endpoint     text not null,
    lease_ms     bigint not null check (lease_ms > 0),
    started_at   timestamptz not null,
    heartbeat_at timestamptz not null
) with (fillfactor = 50);

create table agents (
    id                text primary key,
    name              text not null,
    default_wallet_id text,
    default_permit_id text,
    created_at        timestamptz not null default now()
);

create table agent_wallets (
    agent_id  text not null,
    wallet_id text not null,
    primary key (agent_id, wallet_id)
);

-- Only the SHA-256 of a key is kept.
create table agent_keys (
    id         text primary key,
    agent_id   text not null,
    sha256     bytea not null unique check (octet_length(sha256) = 32),
    roles      text[] not null default '{}',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
create index agent_keys_agent on agent_keys (agent_id);

-- deposited: all credits ever paid in. committed: all credits spent or held (the escrow counter), so
-- that a settlement at the reserved price changes no wallet row.
create table wallets (
    id         text primary key,
    name       text not null,
    frozen     boolean not null default false,
    deposited  bigint not null default 0 check (deposited between 0 and 9007199254740991),
    committed  bigint not null default 0 check (committed >= 0),
    created_at timestamptz not null default now(),
    check (committed <= deposited)
) with (fillfactor = 20);

-- The head of each wallet's receipt chain: the newest receipt's number and the hash of its signing input.
create table chains (
    wallet_id text primary key,
    seq       bigint not null default 0 check (seq >= 0),
    head      text not null default '' check (length(head) in (0, 64))
) with (fillfactor = 20);

-- token is the truth; the other columns are an index of it.
create table permits (
    id         text primary key,
    wallet_id  text not null,
    agent_id   text not null,
    issuer     text not null,
    token      text not null check (length(token) <= 8192),
    sha256     bytea not null check (octet_length(sha256) = 32),
    not_before timestamptz not null,
    expires_at timestamptz not null,
    created_at timestamptz not null default now()
);
create index permits_wallet on permits (wallet_id, id);
create index permits_agent on permits (agent_id, id);

-- What a permit has committed (spent or held) of each limit. calls: {"tool": count}.
create table permit_usage (
    wallet_id         text not null,
    permit_id         text not null,
    credits_limit     bigint not null check (credits_limit between 0 and 9007199254740991),
    credits_committed bigint not null default 0 check (credits_committed >= 0),
    calls_limit       bigint check (calls_limit >= 0),
    calls_total       bigint not null default 0 check (calls_total >= 0),
    calls             jsonb not null default '{}',
    value_limit       bigint check (value_limit between 0 and 9007199254740991),
    value_committed   bigint not null default 0 check (value_committed between 0 and 9007199254740991),
    revoked_at        timestamptz,
    primary key (wallet_id, permit_id),
    check (credits_committed <= credits_limit),
    check (calls_limit is null or calls_total <= calls_limit),
    check (value_limit is null or value_committed <= value_limit)
) with (fillfactor = 20);

-- Outside permit issuers and their public keys.
create table issuers (
    kid        text primary key check (length(kid) = 43),
    issuer     text not null,
    public_key bytea not null check (octet_length(public_key) = 32),
    status     text not null check (status in ('next', 'active', 'retired', 'revoked')),
    not_before bigint not null default 0 check (not_before >= 0), -- Unix seconds, as in the key set; 0: none
    expires    bigint not null default 0 check (expires >= 0),
    created_at timestamptz not null default now()
);
create index issuers_issuer on issuers (issuer, kid);

-- One row for each key ever used with a wallet: the claim. Never updated, never deleted (I1).
-- value_amount and value_currency are null together, where the tool has no value.
create table operations (
    wallet_id      text not null,
    key            text not null check (key <> ''),
    id             uuid not null,
    agent_id       text not null,
    permit_id      text not null,
    tool           text not null,
    tool_sha256    bytea not null check (octet_length(tool_sha256) = 32),
    key_source     text not null,
    operation_key  text not null,
    request_hash   bytea not null check (octet_length(request_hash) = 32),
    arguments      bytea not null,
    authorized     bigint not null check (authorized between 0 and 9007199254740991),
    value_currency text,
    value_amount   bigint check (value_amount between 0 and 9007199254740991),
    started_ms     bigint not null check (started_ms > 0),
    primary key (wallet_id, key),
    check ((value_currency is null) = (value_amount is null))
);
-- Leads with the time-ordered id, so that inserts touch one page and an operator can look up by id alone.
create unique index operations_id on operations (id, wallet_id);

-- An open hold: the operation is dispatching and this instance may settle it. Deleting the row is the
-- right to write the outcome: whoever deletes it, settles (the fence of takeovers).
create table holds (
    wallet_id    text not null,
    operation_id uuid not null,
    permit_id    text not null,
    tool         text not null,
    credits      bigint not null check (credits between 0 and 9007199254740991),
    value_amount bigint not null check (value_amount between 0 and 9007199254740991),
    instance_id  uuid not null,
    primary key (wallet_id, operation_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- A receipt's signing input is the truth; the other columns are an index of it. A terminal receipt has
-- its operation's id, so the unique index is the guard of "one terminal outcome, one receipt" (I5).
create table receipts (
    wallet_id     text not null,
    seq           bigint not null check (seq > 0),
    id            uuid not null,
    operation_id  uuid not null,
    outcome       text not null check (outcome in ('succeeded', 'denied', 'failed', 'delivery_uncertain', 'reconciled')),
    reason        text,
    charged       bigint not null check (charged between 0 and 9007199254740991),
    calls_kept    smallint not null check (calls_kept in (0, 1)), -- of the permit's call count
    value_kept    bigint not null check (value_kept between 0 and 9007199254740991), -- of its value limit
    ended_ms      bigint not null check (ended_ms > 0),
    signing_input text not null,
    primary key (wallet_id, seq)
);
create unique index receipts_id on receipts (id, wallet_id);
create index receipts_uncertain on receipts (wallet_id, operation_id) where outcome = 'delivery_uncertain';

create table signatures (
    receipt_id uuid not null,
    wallet_id  text not null,
    signature  bytea not null check (octet_length(signature) = 64),
    primary key (receipt_id, wallet_id)
);

-- Double entry: each row takes amount from debit_account and gives it to credit_account. Accounts are
-- wallet ids, 'external' (where deposits come from) and 'revenue' (where charges go).
create table transfers (
    wallet_id      text not null,
    id             uuid not null,
    kind           text not null check (kind in ('deposit', 'charge', 'reversal')),
    debit_account  text not null,
    credit_account text not null,
    amount         bigint not null check (amount between 1 and 9007199254740991),
    created_ms     bigint not null check (created_ms > 0),
    reference      text,
    primary key (wallet_id, id),
    check (debit_account <> credit_account)
);

-- A deposit's reference admits one deposit; the first answer is kept.
create table deposits (
    wallet_id   text not null,
    reference   text not null,
    transfer_id uuid not null,
    credits     bigint not null check (credits between 1 and 9007199254740991),
    balance     bigint not null check (balance between 0 and 9007199254740991),
    available   bigint not null check (available between 0 and 9007199254740991),
    primary key (wallet_id, reference)
);

-- The result an agent was answered, before `_meta` members of ours. Apart, so that bodies can be pruned.
create table responses (
    wallet_id    text not null,
    operation_id uuid not null,
    result       bytea not null,
    primary key (wallet_id, operation_id)
);

-- What an upstream answered to an operation that had meanwhile been settled as uncertain: evidence.
create table late_results (
    wallet_id    text not null,
    operation_id uuid not null,
    outcome      text not null,
    reason       text,
    result       bytea not null,
    arrived_at   timestamptz not null default now(),
    primary key (wallet_id, operation_id)
);

-- Administrative acts. Outcomes of calls are audit events too: each receipt row is one.
create table audit (
    id      uuid primary key,
    at      timestamptz not null default now(),
    actor   text not null,
    action  text not null,
    subject text not null,
    detail  jsonb not null default '{}'
);

-- Idempotency of creating requests on the operator API.
create table requests (
    actor      text not null,
    key        text not null,
    sha256     bytea not null check (octet_length(sha256) = 32),
    status     integer not null,
    body       bytea not null,
    created_at timestamptz not null default now(),
    primary key (actor, key)
);
