-- Undoes a transaction.
rollback
