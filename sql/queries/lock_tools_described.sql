-- Locks the tools' rows in the order of their names: of several gateways that see a change, one reports it.
-- Index: tools_described_pkey.
select tool, sha256 from tools_described where tool = any($1::text[]) order by tool for update
