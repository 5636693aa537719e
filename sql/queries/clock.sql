-- No lock. The database's clock, in milliseconds since the epoch; asked after the locks are held.
select (extract(epoch from clock_timestamp()) * 1000)::bigint
