-- Ends an instance's own lease at a clean stop. Index: instances_pkey.
update instances set heartbeat_at = 'epoch' where id = $1
