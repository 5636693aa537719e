-- Ends the lease of earlier processes at this endpoint: whoever holds the endpoint is the only one alive.
update instances set heartbeat_at = 'epoch'
where endpoint = $1 and id <> $2 and heartbeat_at > 'epoch'
returning id
