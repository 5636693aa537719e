-- No lock. The stored answer to an idempotency key of the operator API. Index: requests_pkey.
select sha256, status, body from requests where actor = $1 and key = $2
