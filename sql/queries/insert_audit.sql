-- Appends an audit event, in the transaction of its act.
insert into audit (id, actor, action, subject, detail) values ($1, $2, $3, $4, $5::jsonb)
