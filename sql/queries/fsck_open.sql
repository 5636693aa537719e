-- No lock. How many operations are dispatching.
select count(*) from holds
