-- Ends a transaction: the durable point.
commit
