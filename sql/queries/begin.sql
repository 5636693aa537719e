-- Opens a transaction; the server's READ COMMITTED is what the lock order assumes.
begin isolation level read committed
