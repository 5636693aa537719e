-- Moves the mark of pruning; it never moves back, whoever prunes beside this one.
insert into pruning (one, up_to) values (1, $1)
on conflict (one) do update set up_to = greatest(pruning.up_to, excluded.up_to)
