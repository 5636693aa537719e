-- What tools were, and are.

-- Each definition that a tool ever had, under the name that agents see, in its canonical form: what a receipt's
-- tool_sha256 stands for. Rows are never changed.
create table tool_definitions (
    sha256     bytea primary key check (octet_length(sha256) = 32),
    tool       text not null check (tool <> ''),
    definition text not null check (definition <> ''),
    first_seen timestamptz not null default now()
);

-- Which of them its upstream described last, so that a change is noticed across restarts, and told once by many
-- gateways.
create table tools_described (
    tool   text primary key check (tool <> ''),
    sha256 bytea not null check (octet_length(sha256) = 32),
    since  timestamptz not null default now()
);
