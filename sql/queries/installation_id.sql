-- No lock. The installation's id.
select id from installation where one = 1
