-- Renews the lease of one instance. Index: instances_pkey.
update instances set heartbeat_at = now() where id = $1
