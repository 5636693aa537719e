-- Registers a gateway process. No lock.
insert into instances (id, endpoint, started_at, heartbeat_at)
values ($1, $2, now(), now())
