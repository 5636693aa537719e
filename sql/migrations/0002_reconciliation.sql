-- References, reconciliations and pruning.

-- The operation reference, where the tool has one.
alter table operations add column reference text check (reference <> '');

-- An operation reference in use: one effect for each (wallet, tool, reference), whatever the key. The row
-- goes when the operation turns out not to have been delivered, or when an operator releases it.
create table operation_refs (
    wallet_id    text not null,
    tool         text not null,
    reference    text not null check (reference <> ''),
    operation_id uuid not null,
    primary key (wallet_id, tool, reference)
);

-- The queue of reconciliations: operations whose outcome is uncertain. As small as what waits; probe_at is
-- when the tool's probe may be asked again, probes how often it was.
create table uncertain (
    wallet_id    text not null,
    operation_id uuid not null,
    tool         text not null,
    charged      bigint not null check (charged between 0 and 9007199254740991),
    since_ms     bigint not null check (since_ms > 0),
    probes       integer not null default 0 check (probes >= 0),
    probe_at     timestamptz,
    primary key (wallet_id, operation_id)
) with (fillfactor = 50);

drop index receipts_uncertain;

-- A decision about an uncertain operation, once for each (the primary key is the guard of I5): receipt_id is
-- the receipt that says it, charged_before what the uncertain one charged.
create table reconciliations (
    wallet_id          text not null,
    operation_id       uuid not null,
    receipt_id         uuid not null,
    resolution         text not null check (resolution in ('delivered', 'not_delivered')),
    evidence           text not null check (evidence <> ''),
    provider_reference text not null,
    charged_before     bigint not null check (charged_before between 0 and 9007199254740991),
    actor              text not null,
    decided_ms         bigint not null check (decided_ms > 0),
    primary key (wallet_id, operation_id)
);

-- A reconciliation has an answer of its own: a response belongs to its receipt. A terminal receipt has its
-- operation's id.
alter table responses rename column operation_id to receipt_id;

-- How far the pruning of response bodies has come: those of earlier receipts are gone.
create table pruning (
    one   smallint primary key check (one = 1),
    up_to uuid not null
);

-- Whether a late result was scrubbed, as its receipt would say; of what is here already it is not known.
alter table late_results add column scrubbed boolean not null default false;
