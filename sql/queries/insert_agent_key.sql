-- Inserts an API key by its SHA-256. It must expire in the future, by the database's clock; else no row.
insert into agent_keys (id, agent_id, sha256, roles, expires_at)
select $1, $2, $3, $4::text[], $5::timestamptz
where $5::timestamptz is null or $5::timestamptz > now()
returning created_at
