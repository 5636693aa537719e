-- No lock. Operations whose outcome is uncertain. Index: receipts_uncertain, as small as what is uncertain.
select count(*) from receipts where outcome = 'delivery_uncertain'
