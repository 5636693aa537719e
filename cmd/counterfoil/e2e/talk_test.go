package e2e_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const telling = "test_tool_with_progress"

// askingTools are tools of the Go SDK's server that ask their caller in the middle, and what they say to who answers that
// it is called Ada and likes blue, greets with Bonjour, and works in file:///work.
func askingTools() map[string]string {
	const asked = "test_input_required_result_"
	return map[string]string{
		asked + "elicitation":     "Hello, Ada!",
		asked + "sampling":        "Sampling response: Bonjour",
		asked + "list_roots":      "Client exposed 1 root(s): file:///work",
		asked + "request_state":   "state-ok: requestState received and confirmation accepted",
		asked + "multiple_inputs": "Bonjour Ada — 1 root(s) visible",
		asked + "multi_round":     "Multi-round complete: Ada likes blue",
		asked + "capabilities":    "Capability-aware input requests fulfilled",
	}
}

// talk is what a client saw of its calls: each made twice under one key.
type talk struct {
	Calls map[string]struct{ First, Again talked }
}

type talked struct {
	Result   clientResult
	Progress []progress
}

type progress struct {
	Progress, Total float64
	Message         string
}

// TestClientsHearOfProgressAndAnswerTools: the stock clients hear of each step of a tool that tells of its progress, and those
// of the revision that has rounds answer, by themselves, what a tool asks. However many rounds a call takes, it is one
// operation that is paid once, and a repeat of it asks nobody anything.
func TestClientsHearOfProgressAndAnswerTools(t *testing.T) {
	t.Parallel()
	s := newConformanceSystem(t)
	for _, c := range []struct{ which, mode string }{{"v1", "default"}, {"v2", "default"}, {"v2", "auto"}, {"v2", "pin"}, {"go", "2025-11-25"}, {"go", "2026-07-28"}} {
		t.Run(c.which+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			x := s.newTenant(t, 100, object{"tools": conformanceTools, "limits": object{"credits": 100}})
			tools := []string{telling}
			if c.mode != "default" && c.mode != "2025-11-25" {
				for tool := range askingTools() {
					tools = append(tools, tool)
				}
			}
			var saw talk
			if c.which == "go" {
				saw = x.talkInGo(t, c.mode, tools)
			} else {
				printed := node(t, "talk.mjs", []string{"URL_=" + s.url + "/mcp", "KEY=" + x.key, "PERMIT=" + x.permit}, append([]string{c.which, c.mode}, tools...)...)
				if err := json.Unmarshal(printed, &saw); err != nil {
					t.Fatalf("%v: %s", err, printed)
				}
			}
			x.talkedWell(t, saw, tools)
		})
	}
}

// talkedWell checks a client's calls, and what they cost.
func (x tenant) talkedWell(t *testing.T, saw talk, tools []string) {
	t.Helper()
	var operations []string
	for _, tool := range tools {
		c := saw.Calls[tool]
		first, again := c.First.Result, c.Again.Result
		if len(first.Content) != 1 || first.IsError || first.Meta.Outcome != "succeeded" || first.Meta.Charged == nil || *first.Meta.Charged != 1 {
			t.Errorf("%s: %+v", tool, first)
			continue
		}
		if want := askingTools()[tool]; want != "" && first.Content[0].Text != want {
			t.Errorf("%s says %q, want %q", tool, first.Content[0].Text, want)
		}
		if again.Meta.Receipt != first.Meta.Receipt || !cmp.Equal(again.Content, first.Content) {
			t.Errorf("%s again: %+v", tool, again)
		}
		x.s.receipt(t, answer{meta: first.Meta})
		operations = append(operations, first.Meta.Operation)
	}
	steps := []progress{{0, 100, "Completed step 0 of 100"}, {50, 100, "Completed step 50 of 100"}, {100, 100, "Completed step 100 of 100"}}
	if diff := cmp.Diff(steps, saw.Calls[telling].First.Progress); diff != "" {
		t.Errorf("the progress (-want +got):\n%s", diff)
	}
	if p := saw.Calls[telling].Again.Progress; len(p) != 0 {
		t.Errorf("a replay tells of progress: %v", p)
	}
	n := len(tools)
	if st := x.state(t); st.Operations != n || st.Charges != n || st.Receipts != n || st.Balance != 100-int64(n) || st.Held != 0 || st.Open != 0 {
		t.Errorf("after %d calls in the operations %s: %+v", n, operations, st)
	}
}

// talkInGo makes the calls with the Go client.
func (x tenant) talkInGo(t *testing.T, revision string, tools []string) talk {
	t.Helper()
	var mu sync.Mutex
	heard := map[any][]progress{} // by token; guarded by mu
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "color": "blue", "ok": true}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "Bonjour"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			token := r.Params.ProgressToken
			heard[token] = append(heard[token], progress{r.Params.Progress, r.Params.Total, r.Params.Message})
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///work", Name: "work"})
	saw := talk{Calls: map[string]struct{ First, Again talked }{}}
	told := func(token string) []progress {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(heard[token])
	}
	for _, tool := range tools {
		session := x.connect(t, client, tool, revision)
		call := func(token string) (c talked) {
			params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage("{}")}
			params.SetProgressToken(token)
			result, err := session.CallTool(t.Context(), params)
			if err != nil {
				t.Fatalf("%s: %v", tool, err)
			}
			remake(t, result, &c.Result)
			return c
		}
		c := struct{ First, Again talked }{call(tool), call(tool + " again")}
		if tool == telling { // this client hears of progress beside the result, or after it
			eventually(t, "the progress", func() bool { return len(told(tool)) >= 3 })
		}
		c.First.Progress, c.Again.Progress = told(tool), told(tool+" again")
		saw.Calls[tool] = c
	}
	return saw
}
