-- No lock. Since when an instance that was not ended cleanly may have left receipts unsigned.
select min(started_at) from instances where heartbeat_at > 'epoch'
