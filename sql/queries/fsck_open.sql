-- No lock. How many operations are dispatching, and how many wait for input.
select count(*) filter (where instance_id <> '00000000-0000-0000-0000-000000000000'),
    count(*) filter (where instance_id = '00000000-0000-0000-0000-000000000000')
from holds
