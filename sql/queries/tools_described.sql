-- No lock. The definitions that tools had last, whichever gateway saw them. Index: tools_described_pkey, tool_definitions_pkey.
select d.tool, d.sha256, d.definition, d.first_seen
from tools_described f
join tool_definitions d on d.sha256 = f.sha256
where f.tool = any($1::text[])
