-- No lock, no index: whether commits are durable here, whether they wait for a standby, and how many there are.
select current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    (select count(*) from pg_stat_replication)
