-- Rounds: a tool that asks for input before it acts.

-- The round in which the operation is with its tool: 0 for its first call. A hold of the zero instance is parked: the
-- tool has asked for input, nobody dispatches, and the row in rounds says what was asked. Instance and round
-- together are what a holder must still find to park the operation, to go on with it, or to settle it.
alter table holds add column round bigint not null default 0 check (round >= 0);

-- What tools have asked for: a row exactly while its operation waits for input. Taking the row away is the right to
-- go on, or to give up. state_sha256 is a digest of the state that the caller must bring back, null where
-- the tool gave none.
create table rounds (
    wallet_id    text not null,
    operation_id uuid not null,
    number       bigint not null check (number > 0),
    state_sha256 bytea check (octet_length(state_sha256) = 32),
    result       bytea not null,
    asked_ms     bigint not null check (asked_ms > 0),
    expires_ms   bigint not null check (expires_ms >= asked_ms),
    primary key (wallet_id, operation_id)
);
create index rounds_state on rounds (wallet_id, state_sha256);
create index rounds_expiry on rounds (expires_ms);

-- The JSON-RPC error object with which an upstream rejected the call, where it did.
alter table responses add column error bytea;
