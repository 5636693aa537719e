// A stock MCP client from npm that makes one call with the _meta it is given, and prints its result.
const [, , which, mode] = process.argv;
const { URL_, KEY, WALLET, PERMIT, TOOL, ARGS, META } = process.env;

const v1 = which === 'v1';
const core = v1 ? await import('@modelcontextprotocol/sdk/client/index.js') : await import('@modelcontextprotocol/client');
const http = v1 ? await import('@modelcontextprotocol/sdk/client/streamableHttp.js') : core;
const options = mode === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {};
const client = new core.Client({ name: 'once', version: '1.0.0' }, options);
const headers = { 'X-API-Key': KEY, 'Counterfoil-Wallet': WALLET, 'Counterfoil-Permit': PERMIT };
await client.connect(new http.StreamableHTTPClientTransport(new URL(URL_), { requestInit: { headers } }));
let out;
try {
  out = { result: await client.callTool({ name: TOOL, arguments: JSON.parse(ARGS), _meta: JSON.parse(META) }) };
} catch (error) {
  out = { refused: { code: error.code, data: error.data, message: String(error.message) } };
}
await client.close().catch(() => {});
console.log(JSON.stringify(out));
