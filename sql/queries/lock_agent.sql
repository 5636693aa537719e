-- Locks one agent, so that changes of it are serial. Index: agents_pkey.
select id from agents where id = $1 for update
