package connect

import "strings"

// inspectorVersion is the one that the snippets were tried with.
const inspectorVersion = "2.12.0"

// runsOn is what a client that names calls by itself must know about its time-outs.
const runsOn = "A call that takes longer still runs to its record, and what the model tries next is another call with another key: " +
	"wait longer than the tool can take, and give a tool that must not act twice an operation_ref."

func claudeCode(t target, g *Guide) {
	headers := t.headers("${" + KeyVariable + "}")
	g.Steps = append(t.keyStep("that Claude Code is started from"),
		Step{
			Do: "Add the server to the project, from the command line", Language: "sh",
			Text: "claude mcp add --scope project --transport http counterfoil '" + t.endpoint + "' \\\n  " + lines(headers, "--header '%s: %s'", " \\\n  "),
		},
		Step{
			Do: "Or write the same yourself", File: ".mcp.json", Language: "json",
			Text: "{\n  \"mcpServers\": {\n    \"counterfoil\": {\n      \"type\": \"http\",\n      \"url\": \"" + t.endpoint + "\",\n" +
				"      \"headers\": {\n        " + lines(headers, `"%s": "%s"`, ",\n        ") + "\n      }\n    }\n  }\n}",
		})
	g.IdempotencyKey = "from Claude Code itself, which names each call in _meta (claudecode/toolUseId). There is nothing to configure."
	if t.Key == "" {
		g.Notes = []string{"Single quotes keep the variable as it is: Claude Code puts the key in when it connects, and no file holds it. If it reports 401, it was started without the variable."}
	}
	g.Notes = append(g.Notes, "MCP_TOOL_TIMEOUT (milliseconds) is how long it waits for a tool. "+runsOn)
}

func codex(t target, g *Guide) {
	text := "[mcp_servers.counterfoil]\nurl = \"" + t.endpoint + "\"\n"
	headers := t.context()
	if t.Key == "" {
		text += "bearer_token_env_var = \"" + KeyVariable + "\"\n"
	} else {
		headers = t.headers("")
	}
	if len(headers) > 0 {
		text += "http_headers = { " + lines(headers, `"%s" = "%s"`, ", ") + " }\n"
	}
	g.Steps = append(t.keyStep("that Codex is started from"),
		Step{Do: "Add the server", File: "~/.codex/config.toml", Language: "toml", Text: text + "tool_timeout_sec = 120"})
	g.IdempotencyKey = "from Codex itself, which names each call in _meta (callId). There is nothing to configure."
	g.Notes = []string{"tool_timeout_sec is how long Codex waits for a tool. " + runsOn}
}

func vscode(t target, g *Guide) {
	headers := t.headers("${input:counterfoil-key}")
	inputs := ""
	if t.Key == "" {
		inputs = "  \"inputs\": [\n    {\n      \"type\": \"promptString\",\n      \"id\": \"counterfoil-key\",\n" +
			"      \"description\": \"API key of the agent (cf_…)\",\n      \"password\": true\n    }\n  ],\n"
	}
	g.Steps = []Step{{
		Do: "Add the server to the workspace", File: ".vscode/mcp.json", Language: "json",
		Text: "{\n" + inputs + "  \"servers\": {\n    \"counterfoil\": {\n      \"type\": \"http\",\n      \"url\": \"" + t.endpoint + "\",\n" +
			"      \"headers\": {\n        " + lines(headers, `"%s": "%s"`, ",\n        ") + "\n      }\n    }\n  }\n}",
	}}
	g.IdempotencyKey = "from nowhere yet: Visual Studio Code sends nothing that names a call. It lists the tools and calls the built-in ones; a governed call is refused with idempotency_key_required, and nothing happens."
	if t.Key == "" {
		g.Notes = []string{"The key is asked for once, kept in the editor's secret storage, and is in no file."}
	}
	g.Notes = append(g.Notes, "A fixed Idempotency-Key header is no way out: one key is one action, for ever.")
}

func inspector(t target, g *Guide) {
	headers := t.headers("$" + KeyVariable)
	run := func(method string, more ...header) string {
		return "npx @modelcontextprotocol/inspector@" + inspectorVersion + " --cli '" + t.endpoint + "' --transport http \\\n  " + method + " \\\n  " +
			lines(append(headers, more...), `--header "%s: %s"`, " \\\n  ")
	}
	g.Steps = append(t.keyStep("of the shell"),
		Step{Do: "List the tools", Language: "sh", Text: run("--method tools/list")},
		Step{
			Do: "Call one; the header names the action", Language: "sh",
			Text: run("--method tools/call --tool-name payout --tool-arg to=ap@vendor.example --tool-arg amount=1200", header{"Idempotency-Key", exampleKey}),
		})
	g.IdempotencyKey = "from the header Idempotency-Key, which a command line sends with one call only."
	g.Notes = []string{
		"--protocol-era legacy, auto or modern chooses the generation of the protocol; all three work.",
		"A denial is a tool error to it: exit status 5, with the reason in the result.",
	}
}

func curl(t target, g *Guide) {
	headers := append(t.headers("$"+KeyVariable), header{"Content-Type", "application/json"}, header{"Idempotency-Key", exampleKey})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"payout","arguments":` + strings.ReplaceAll(exampleArguments, ": ", ":") + `}}`
	g.Steps = append(t.keyStep("of the shell"), Step{
		Do: "Call a tool; the header names the action", Language: "sh",
		Text: "curl -sS '" + t.endpoint + "' \\\n  " + lines(headers, `-H "%s: %s"`, " \\\n  ") + " \\\n  -d '" + strings.ReplaceAll(body, ", ", ",") + "'",
	})
	g.IdempotencyKey = "from the header Idempotency-Key, or from params.mcpContext in the body."
	g.Notes = []string{"The handshake is not needed: each request stands alone."}
}
