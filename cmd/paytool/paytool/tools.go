package paytool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"counterfoil/internal/canon"
)

// maxWait bounds how long slow keeps a caller.
const maxWait = 10 * time.Minute

type tool struct {
	name, description, schema string
	readOnly                  bool // it is no effect, and says so
	run                       func(context.Context, action) (*mcp.CallToolResult, error)
}

func tools() []tool {
	return []tool{
		{
			"payout", "Pays an amount, in cents, to a recipient.",
			`{"type":"object","additionalProperties":false,"required":["to","amount"],"properties":{` +
				`"to":{"type":"string"},"amount":{"type":"integer","minimum":1},"invoice_id":{"type":"string"}}}`,
			false, payout,
		},
		{
			"refund", "Pays an amount, in cents, back to whoever paid an invoice.",
			`{"type":"object","additionalProperties":false,"required":["invoice_id","amount"],"properties":{` +
				`"invoice_id":{"type":"string"},"amount":{"type":"integer","minimum":1}}}`,
			false, refund,
		},
		{
			"send_email", "Sends a message.",
			`{"type":"object","additionalProperties":false,"required":["to","subject","body"],"properties":{` +
				`"to":{"type":"string"},"bcc":{"type":"string"},"subject":{"type":"string"},"body":{"type":"string"}}}`,
			false, sendEmail,
		},
		{
			"slow", "Acts at once and answers after some seconds.",
			`{"type":"object","additionalProperties":false,"required":["seconds"],"properties":{` +
				`"seconds":{"type":"number","minimum":0,"maximum":600}}}`,
			false, slow,
		},
		{
			"flaky", "Fails in a chosen way: ok acts and answers; drop acts and breaks the connection off; " +
				"500 acts and answers HTTP 500; error does not act and says so.",
			`{"type":"object","additionalProperties":false,"required":["mode"],"properties":{` +
				`"mode":{"type":"string","enum":["ok","drop","500","error"]}}}`,
			false, flaky,
		},
		{
			"payout_status", "Says what became of a call, by its operation key: delivered, or not_delivered where the journal has no " +
				"effect of that key. It knows nothing of a call that is still on its way here: ask when none can be.",
			`{"type":"object","additionalProperties":false,"required":["operation_key"],"properties":{` +
				`"operation_key":{"type":"string","minLength":1}}}`,
			true, payoutStatus,
		},
	}
}

func payout(_ context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		To        string `json:"to"`
		Amount    int64  `json:"amount"`
		InvoiceID string `json:"invoice_id"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	if in.To == "" || in.Amount <= 0 {
		return nil, refusal("a payout needs a recipient and an amount above 0")
	}
	return a.act(fmt.Sprintf("paid %d to %s", in.Amount, oneLine(in.To)))
}

func refund(_ context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		InvoiceID string `json:"invoice_id"`
		Amount    int64  `json:"amount"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	if in.InvoiceID == "" || in.Amount <= 0 {
		return nil, refusal("a refund needs an invoice and an amount above 0")
	}
	return a.act(fmt.Sprintf("refunded %d on %s", in.Amount, oneLine(in.InvoiceID)))
}

func sendEmail(_ context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		To      string `json:"to"`
		BCC     string `json:"bcc"`
		Subject string `json:"subject"`
		Body    string `json:"body"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	if in.To == "" {
		return nil, refusal("a message needs a recipient")
	}
	return a.act("sent to " + oneLine(in.To))
}

// slow acts before it waits: a caller that is killed meanwhile cannot know, and has to say so.
func slow(ctx context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		Seconds float64 `json:"seconds"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	if in.Seconds < 0 || in.Seconds > maxWait.Seconds() {
		return nil, refusal("seconds is from 0 to 600")
	}
	result, err := a.act(fmt.Sprintf("took %g s", in.Seconds))
	wait := time.NewTimer(time.Duration(in.Seconds * float64(time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	return result, err
}

func flaky(ctx context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		Mode string `json:"mode"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	cut, _ := ctx.Value(cutKey{}).(*cutWriter)
	switch in.Mode {
	case "ok":
		return a.act("worked")
	case "error":
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "did not work; nothing was done"}}}, nil
	case "drop", "500":
		result, err := a.act("worked, but you will not hear of it")
		cut.fail(in.Mode)
		return result, err
	}
	return nil, refusal("mode is ok, drop, 500 or error")
}

func payoutStatus(_ context.Context, a action) (*mcp.CallToolResult, error) {
	var in struct {
		OperationKey string `json:"operation_key"`
	}
	if err := a.read(&in); err != nil {
		return nil, err
	}
	if in.OperationKey == "" {
		return nil, refusal("which call? it needs an operation key")
	}
	status := map[string]any{"status": "not_delivered"}
	if effect, found := a.h.journal.find(in.OperationKey); found {
		status = map[string]any{"status": "delivered", "effect": effect.Seq}
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(status["status"])}},
		StructuredContent: status,
	}, nil
}

// read decodes the arguments strictly. What it refuses has had no effect, and the code says so.
func (a action) read(in any) error {
	arguments := a.arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if err := canon.Decode(arguments, in); err != nil {
		return refusal(err.Error())
	}
	return nil
}

func refusal(what string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: what}
}
