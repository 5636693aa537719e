-- What the gateway may do. It runs every session under this role (SET ROLE), whatever it logged in as.
-- Insert-only: a compromised gateway can add records, not change or remove one. Response bodies are pruned.
grant select, insert on installation, permits, operations, receipts, reconciliations, signatures, transfers,
    deposits, late_results, audit, requests, tool_definitions to counterfoil_gateway;
grant select, insert, update on instances, agents, agent_keys, wallets, chains, permit_usage, issuers, pruning,
    operation_keys, tools_described
    to counterfoil_gateway;
grant select, insert, delete on agent_wallets, operation_refs, responses, rounds to counterfoil_gateway;
grant select, insert, update, delete on holds, uncertain to counterfoil_gateway;
grant select on schema_migrations to counterfoil_gateway;
