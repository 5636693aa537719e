-- Keeps definitions of tools. One that is there stays; in order of their hashes, so that two gateways do not
-- wait for each other in a circle. Index: tool_definitions_pkey.
insert into tool_definitions (sha256, tool, definition)
select sha256, tool, definition
from unnest($1::bytea[], $2::text[], $3::text[]) as d (sha256, tool, definition)
order by sha256
on conflict do nothing
