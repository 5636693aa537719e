// A stock MCP client from npm that hears of progress, and in the revision that has it answers what tools ask. Each call
// is made twice, under one key. Prints what it saw as JSON.
const [, , which, mode, ...tools] = process.argv;
const { URL_, KEY, PERMIT } = process.env;

const v1 = which === 'v1';
const core = v1 ? await import('@modelcontextprotocol/sdk/client/index.js') : await import('@modelcontextprotocol/client');
const http = v1 ? await import('@modelcontextprotocol/sdk/client/streamableHttp.js') : core;

const modern = mode !== 'default';
const options = modern ? { capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} } } : {};
if (mode === 'auto') options.versionNegotiation = { mode: 'auto' };
if (mode === 'pin') options.versionNegotiation = { mode: { pin: '2026-07-28' } };
const client = new core.Client({ name: 'e2e', version: '1.0.0' }, options);
const asked = [];
if (modern) {
  const known = { name: 'Ada', color: 'blue', ok: true };
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push(params.message);
    return { action: 'accept', content: Object.fromEntries(Object.keys(params.requestedSchema.properties).map((p) => [p, known[p]])) };
  });
  client.setRequestHandler('sampling/createMessage', async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'Bonjour' } }));
  client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///work', name: 'work' }] }));
}
await client.connect(new http.StreamableHTTPClientTransport(new URL(URL_), { requestInit: { headers: { 'X-API-Key': KEY, 'Counterfoil-Permit': PERMIT } } }));

const out = { calls: {}, asked };
for (const tool of tools) {
  const call = async () => {
    const progress = [];
    const request = { name: tool, arguments: {}, mcpContext: { idempotency_key: tool } };
    const each = { onprogress: (p) => progress.push(p) };
    const result = await (v1 ? client.callTool(request, undefined, each) : client.callTool(request, each));
    return { result, progress };
  };
  out.calls[tool] = { first: await call(), again: await call() };
}
await client.close();
console.log(JSON.stringify(out));
