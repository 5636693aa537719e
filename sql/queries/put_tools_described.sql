-- Says which definition each tool has from now on. Run after lock_tools_described. Index: tools_described_pkey.
insert into tools_described (tool, sha256)
select tool, sha256
from unnest($1::text[], $2::bytea[]) as f (tool, sha256)
order by tool
on conflict (tool) do update
set sha256 = excluded.sha256, since = now()
where tools_described.sha256 <> excluded.sha256
