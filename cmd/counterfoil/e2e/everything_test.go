package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"counterfoil/internal/canon"

	"github.com/google/go-cmp/cmp"
)

// everythingCalls are calls of every tool that the npm server "everything" offers to a client without capabilities.
func everythingCalls() map[string][]string {
	return map[string][]string{
		"echo":                  {`{"message":"hello"}`, `{"message":"<é>&\u2028 😀 \"\\/"}`, `{}`},
		"get-annotated-message": {`{"messageType":"error"}`, `{"messageType":"success","includeImage":true}`, `{"messageType":"debug"}`, `{"messageType":"other"}`},
		"get-env":               {`{}`},
		"get-resource-links":    {`{}`, `{"count":10}`, `{"count":11}`},
		"get-resource-reference": {
			`{}`, `{"resourceType":"Blob","resourceId":2}`, `{"resourceType":"Text","resourceId":7}`, `{"resourceId":-1}`, `{"resourceId":0.5}`,
		},
		"get-structured-content":         {`{"location":"New York"}`, `{"location":"Chicago"}`, `{"location":"Nowhere"}`},
		"get-sum":                        {`{"a":1,"b":2}`, `{"a":0.1,"b":0.2}`, `{"a":9007199254740991,"b":1}`, `{"a":1e21,"b":-1e-7}`, `{"a":"1"}`},
		"get-tiny-image":                 {`{}`},
		"gzip-file-as-resource":          {`{"name":"a.gz","data":"data:text/plain,hello"}`, `{"name":"b.gz","data":"data:text/plain,hello","outputType":"resource"}`, `{"data":"no"}`},
		"toggle-simulated-logging":       {`{}`, `{}`},
		"toggle-subscriber-updates":      {`{}`, `{}`},
		"trigger-long-running-operation": {`{"duration":0.2,"steps":2}`},
		"simulate-research-query":        {`{"topic":"python"}`},
	}
}

// everythingCommand runs the npm server. Its clock stands still, so that what it writes into its resources, the time of
// day, is the same for all who ask.
func everythingCommand(t *testing.T, transport string) []string {
	t.Helper()
	return []string{"node", "--import", `data:text/javascript,Date.prototype.toLocaleTimeString=()=>"noon"`, npmProgram(t, everythingProgram), transport}
}

// TestServerEverything: what the npm server "everything" says through the gateway is what it says to who asks it itself,
// _meta aside: the definitions, each result, and each result again as a replay in the other era.
func TestServerEverything(t *testing.T) {
	t.Parallel()
	t.Run("over HTTP", func(t *testing.T) {
		t.Parallel()
		address := freeAddress(t)
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		line := everythingCommand(t, "streamableHttp")
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = append(os.Environ(), "PORT="+port)
		background(t, cmd)
		reachable(t, address)
		upstream := "http://" + address + "/mcp"
		asIsGoverned(t, openHTTP(t, upstream), fmt.Sprintf("url: %q", upstream))
	})
	t.Run("over a pipe", func(t *testing.T) {
		t.Parallel()
		line := everythingCommand(t, "stdio")
		quoted, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		asIsGoverned(t, openPipe(t, line), fmt.Sprintf("command: %s", quoted))
	})
}

// asIsGoverned compares a server of this kind with itself behind a gateway.
func asIsGoverned(t *testing.T, itself direct, upstream string) {
	t.Helper()
	definitions := listed(t, itself.ask(t, "tools/list", `{}`))
	var tools strings.Builder
	var names []string
	for _, d := range definitions {
		fmt.Fprintf(&tools, "\n  - {name: %s, upstream: everything, credits: 1}", d.name)
		names = append(names, d.name)
	}
	s := newSystemBeside(t, "\n  - {name: everything, timeout: 60s, "+upstream+"}", tools.String())
	x := s.newTenant(t, 1000, object{"tools": names, "limits": object{"credits": 1000}})

	offered := s.post(t, x.key, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, "Counterfoil-Permit", x.permit)
	governed := slices.DeleteFunc(listed(t, offered.result), func(d definition) bool { return strings.HasPrefix(d.name, "counterfoil_") })
	if diff := cmp.Diff(definitions, governed, cmp.AllowUnexported(definition{})); diff != "" {
		t.Errorf("the definitions (-itself +governed):\n%s", diff)
	}
	calls, made := everythingCalls(), 0
	for _, name := range names {
		if len(calls[name]) == 0 {
			t.Errorf("no call of %s is compared", name)
		}
		for i, args := range calls[name] {
			made++
			said := itself.ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
			c := call{tool: name, args: args, permit: x.permit, key: fmt.Sprintf("%s-%d", name, i)}
			first := x.do(t, c)
			if id := itself.session(); id != "" {
				// It is a secret between two: who is not one of them is shown the operation instead.
				said = bytes.ReplaceAll(said, []byte(id), []byte(first.meta.Operation))
			}
			same(t, name+args, said, first.result)
			replay := x.doModern(t, c)
			if !replay.replayed() {
				t.Errorf("%s%s: not a replay: %s", name, args, replay)
			}
			same(t, name+args+" again", said, replay.result)
		}
	}
	if len(calls) != len(names) {
		t.Errorf("%d tools are offered, and calls of %d are known", len(names), len(calls))
	}
	if n := len(s.all(t, "/v1/receipts", map[string][]string{"wallet": {x.wallet}})); n != made {
		t.Errorf("%d receipts of %d calls", n, made)
	}
}

// definition is a tool as a server lists it: its members in the canonical form, in which the gateway lists all tools, for
// that is what a receipt's tool_sha256 is of.
type definition struct {
	name    string
	members map[string]string
}

func listed(t *testing.T, result json.RawMessage) []definition {
	t.Helper()
	var list struct{ Tools []map[string]json.RawMessage }
	if err := json.Unmarshal(result, &list); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	var out []definition
	for _, tool := range list.Tools {
		d := definition{members: map[string]string{}}
		if err := json.Unmarshal(tool["name"], &d.name); err != nil {
			t.Fatal(err)
		}
		for member, text := range tool {
			canonical, err := canon.Canonical(text)
			if err != nil {
				t.Fatalf("%s of %s: %v", member, d.name, err)
			}
			d.members[member] = string(canonical)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b definition) int { return strings.Compare(a.name, b.name) }) // each server has its own order
	return out
}

// same compares a result with what came of it through the gateway, member by member and byte by byte. _meta is left
// out, and where the tool reports an error, the block of text that the gateway puts after the tool's own.
func same(t *testing.T, what string, itself, governed json.RawMessage) {
	t.Helper()
	want, got := resultMembers(t, itself), resultMembers(t, governed)
	if want["isError"] == "true" {
		var blocks []json.RawMessage
		if err := json.Unmarshal([]byte(got["content"]), &blocks); err != nil || len(blocks) < 2 {
			t.Errorf("%s: %v, no content of two blocks: %s", what, err, governed)
			return
		}
		last := "," + string(blocks[len(blocks)-1]) + "]"
		got["content"] = strings.TrimSuffix(got["content"], last) + "]"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-itself +governed):\n%s", what, diff)
	}
}

func resultMembers(t *testing.T, result json.RawMessage) map[string]string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	out := map[string]string{}
	for name, text := range members {
		if name != "_meta" && name != "resultType" {
			out[name] = string(text)
		}
	}
	return out
}
