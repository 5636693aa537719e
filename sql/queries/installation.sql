-- Makes the installation id once; the loser of a race inserts nothing and reads the winner's.
insert into installation (one, id) values (1, $1) on conflict do nothing
