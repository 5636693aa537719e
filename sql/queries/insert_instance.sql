-- Registers a gateway process. No lock.
insert into instances (id, endpoint, lease_ms, started_at, heartbeat_at)
values ($1, $2, $3, now(), now())
