// A stock MCP client from npm, as its users would write it: lists the tools, calls one twice with the context
// in headers, once with it in params and once with it in _meta, is denied once and refused once. Prints what it saw as JSON.
const [, , which, mode] = process.argv;
const { URL_, KEY, WALLET, PERMIT, TO } = process.env;

const v1 = which === 'v1';
const core = v1 ? await import('@modelcontextprotocol/sdk/client/index.js') : await import('@modelcontextprotocol/client');
const http = v1 ? await import('@modelcontextprotocol/sdk/client/streamableHttp.js') : core;

async function connect(headers) {
  const options = {};
  if (mode === 'auto') options.versionNegotiation = { mode: 'auto' };
  if (mode === 'pin') options.versionNegotiation = { mode: { pin: '2026-07-28' } };
  const client = new core.Client({ name: 'e2e', version: '1.0.0' }, options);
  const transport = new http.StreamableHTTPClientTransport(new URL(URL_), { requestInit: { headers: { 'X-API-Key': KEY, ...headers } } });
  await client.connect(transport);
  return client;
}

const args = (amount) => ({ to: TO, amount });
const out = {};
const inHeaders = await connect({ 'Counterfoil-Wallet': WALLET, 'Counterfoil-Permit': PERMIT, 'Idempotency-Key': `${which}-${mode}-header` });
out.server = inHeaders.getServerVersion();
out.version = inHeaders.getNegotiatedProtocolVersion?.() ?? inHeaders.transport?.protocolVersion ?? '';
out.tools = (await inHeaders.listTools()).tools;
out.first = await inHeaders.callTool({ name: 'payout', arguments: args(1200) });
out.again = await inHeaders.callTool({ name: 'payout', arguments: args(1200) });
await inHeaders.close();

const inParams = await connect({});
const context = (key) => ({ wallet_id: WALLET, permit_id: PERMIT, idempotency_key: `${which}-${mode}-${key}` });
out.more = [];
out.more.push(await inParams.callTool({ name: 'payout', arguments: args(1200), mcpContext: context('params') }));
out.more.push(await inParams.callTool({ name: 'payout', arguments: args(1200), _meta: { 'counterfoil/context': context('meta') } }));
out.denied = await inParams.callTool({ name: 'payout', arguments: args(999999999), mcpContext: context('denied') });
try {
  await inParams.callTool({ name: 'payout', arguments: args(1), mcpContext: context('params') });
} catch (error) {
  out.refused = { code: error.code, data: error.data, message: String(error.message) };
}
await inParams.close();
console.log(JSON.stringify(out));
