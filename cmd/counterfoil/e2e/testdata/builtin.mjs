// A stock MCP client from npm uses the gateway's own tools. It knows their output schemas from the list and holds
// each answer to them. Prints what it saw as JSON.
const [, , which] = process.argv;
const { URL_, KEY, PERMIT, TO } = process.env;

const v1 = which === 'v1';
const core = v1 ? await import('@modelcontextprotocol/sdk/client/index.js') : await import('@modelcontextprotocol/client');
const http = v1 ? await import('@modelcontextprotocol/sdk/client/streamableHttp.js') : core;

const client = new core.Client({ name: 'e2e', version: '1.0.0' }, v1 ? {} : { versionNegotiation: { mode: 'auto' } });
const headers = { 'X-API-Key': KEY, 'Counterfoil-Permit': PERMIT };
await client.connect(new http.StreamableHTTPClientTransport(new URL(URL_), { requestInit: { headers } }));
const use = (name, args) => client.callTool({ name: `counterfoil_${name}`, arguments: args });

const out = {};
out.tools = (await client.listTools()).tools;
const paid = await client.callTool({ name: 'payout', arguments: { to: TO, amount: 1200 }, _meta: { 'counterfoil/context': { idempotency_key: which } } });
const id = paid._meta['counterfoil/operation_id'];
out.paid = paid;
out.operation = await use('operation_get', { operation_id: id });
out.resumed = await use('operation_resume', { operation_id: id });
out.permit = await use('permit_get', {});
out.none = await use('operation_get', { operation_id: 'op_01912345-6789-7abc-8def-0123456789ab' });
await client.close();
console.log(JSON.stringify(out));
