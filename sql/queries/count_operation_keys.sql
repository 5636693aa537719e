-- No lock. How many operation keys are free, and how many are used.
select count(*) filter (where uses = 0), count(*) filter (where uses = 1)
from operation_keys
