package connect

import "strings"

// The call that the snippets make: an invoice is paid with the tool of the demo.
const (
	exampleKey       = "invoice-4417"
	exampleArguments = `{"to": "ap@vendor.example", "amount": 1200}`
)

// The versions that the snippets were written for.
const (
	typescriptVersion = "2.4.0"
	pythonVersion     = "2"
	goVersion         = "v1.8.0"
)

const keyInMeta = `from _meta: the snippet puts "counterfoil/context" into each call. Choose what names the action, not the attempt, and send the same again after a lost answer.`

// quoted writes the headers as members of a literal; key is how the language reads the variable.
func (t target) quoted(credential, key, format, between string) string {
	if t.Key != "" {
		return lines(t.headers(""), format, between)
	}
	text := lines(t.headers(credential), format, between)
	return strings.Replace(text, `"Bearer `+credential+`"`, key, 1)
}

func typescript(t target, g *Guide) {
	headers := t.quoted("KEY", "`Bearer ${process.env."+KeyVariable+"}`", `"%s": "%s"`, ",\n      ")
	g.Steps = append([]Step{{Do: "Install the client", Language: "sh", Text: "npm install @modelcontextprotocol/client@" + typescriptVersion}},
		append(t.keyStep("of the program"), Step{Do: "Connect, and call a tool", Language: "ts", Text: `import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const transport = new StreamableHTTPClientTransport(new URL("` + t.endpoint + `"), {
  requestInit: {
    headers: {
      ` + headers + `,
    },
  },
});
const client = new Client({ name: "my-agent", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
await client.connect(transport);

const result = await client.callTool({
  name: "payout",
  arguments: ` + exampleArguments + `,
  _meta: { "counterfoil/context": { idempotency_key: "` + exampleKey + `" } },
});
console.log(result.content);
console.log(result._meta?.["counterfoil/outcome"], result._meta?.["counterfoil/receipt_id"]);
await client.close();`})...)
	g.IdempotencyKey = keyInMeta
	g.Notes = []string{
		"The client waits 60 s for an answer. Give callTool a longer timeout where the tool needs it, or repeat the call with the same key.",
		"@modelcontextprotocol/sdk 1.32.2 takes the same headers and the same _meta; its imports are client/index.js and client/streamableHttp.js.",
	}
}

func python(t target, g *Guide) {
	headers := t.quoted("KEY", `f"Bearer {os.environ['`+KeyVariable+`']}"`, `"%s": "%s"`, ",\n    ")
	g.Steps = append([]Step{{Do: "Install the client", Language: "sh", Text: "pip install 'mcp>=" + pythonVersion + ",<3'"}},
		append(t.keyStep("of the program"), Step{Do: "Connect, and call a tool", Language: "python", Text: `import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HEADERS = {
    ` + headers + `,
}


async def main():
    async with httpx2.AsyncClient(headers=HEADERS, timeout=120) as http:
        async with Client(streamable_http_client("` + t.endpoint + `", http_client=http)) as client:
            result = await client.call_tool(
                "payout",
                ` + exampleArguments + `,
                meta={"counterfoil/context": {"idempotency_key": "` + exampleKey + `"}},
            )
            print(result.content)
            print((result.meta or {}).get("counterfoil/outcome"))


asyncio.run(main())`})...)
	g.IdempotencyKey = keyInMeta
	g.Notes = []string{"Written from the SDK's documentation; this project's tests do not run it."}
}

func goSDK(t target, g *Guide) {
	// As gofmt aligns them: names that are shorter than the longest get blanks.
	headers := t.quoted("KEY", `"Bearer " + os.Getenv("`+KeyVariable+`")`, `"%s": "%s"`, ",\n\t\t\t")
	if len(t.context()) > 0 {
		headers = strings.Replace(headers, `"Authorization": `, `"Authorization":      `, 1)
	}
	imports := "\t\"net/http\"\n\t\"os\"\n"
	if t.Key != "" {
		imports = "\t\"net/http\"\n"
	}
	g.Steps = append([]Step{{Do: "Add the client to your module", Language: "sh", Text: "go get github.com/modelcontextprotocol/go-sdk@" + goVersion}},
		append(t.keyStep("of the program"), Step{Do: "Connect, and call a tool", Language: "go", Text: "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"log\"\n" + imports + `
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// headers are sent with every request.
type headers map[string]string

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func main() {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "my-agent", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: "` + t.endpoint + `",
		HTTPClient: &http.Client{Transport: headers{
			` + headers + `,
		}},
		MaxRetries:           -1,
		DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	result, err := session.CallTool(ctx, &mcp.CallToolParams{
		Name:      "payout",
		Arguments: map[string]any` + exampleArguments + `,
		Meta:      mcp.Meta{"counterfoil/context": map[string]any{"idempotency_key": "` + exampleKey + `"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Meta["counterfoil/outcome"], result.Meta["counterfoil/receipt_id"])
}`})...)
	g.IdempotencyKey = keyInMeta
	g.Notes = []string{
		"MaxRetries -1: the client sends nothing again by itself. It cannot hurt here, where a repeat is answered from the record, but it hides a lost answer from you.",
	}
}
