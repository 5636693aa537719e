-- No lock. One definition by its hash; rows are never changed. Index: tool_definitions_pkey.
select d.tool, d.sha256, d.definition, d.first_seen from tool_definitions d where d.sha256 = $1
