-- No lock. Each wallet's counters beside what its transfers and holds say, and its chain head.
select w.id, w.deposited, w.committed,
    coalesce(t.deposits, 0)::bigint, coalesce(t.charges, 0)::bigint, coalesce(t.reversals, 0)::bigint,
    coalesce(h.held, 0)::bigint, c.seq, c.head
from wallets w
left join (
    select wallet_id,
        sum(amount) filter (where kind = 'deposit') as deposits,
        sum(amount) filter (where kind = 'charge') as charges,
        sum(amount) filter (where kind = 'reversal') as reversals
    from transfers group by wallet_id
) t on t.wallet_id = w.id
left join (select wallet_id, sum(credits) as held from holds group by wallet_id) h on h.wallet_id = w.id
left join chains c on c.wallet_id = w.id
order by w.id
