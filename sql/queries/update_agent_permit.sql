-- Sets the default permit of a locked agent. The default wallet has no statement: it never changes.
update agents set default_permit_id = nullif($2, '') where id = $1
