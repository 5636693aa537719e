-- No lock. The signed text of one permit; rows are never changed. Index: permits_pkey.
select token, wallet_id, agent_id, issuer, sha256 from permits where id = $1
