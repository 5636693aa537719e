-- No lock. What is open right now.
select count(*) from holds
