-- What the gateway may do. It runs every session under this role (SET ROLE), whatever it logged in as.
-- Insert-only: a compromised gateway can add records, not change or remove one.
grant select, insert on installation, permits, operations, receipts, signatures, transfers, deposits,
    responses, late_results, audit, requests to counterfoil_gateway;
grant select, insert, update on instances, agents, agent_keys, wallets, chains, permit_usage, issuers to counterfoil_gateway;
grant select, insert, delete on agent_wallets, holds to counterfoil_gateway;
grant select on schema_migrations to counterfoil_gateway;
