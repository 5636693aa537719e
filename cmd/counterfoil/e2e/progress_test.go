package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// tells is a tool that says n times how far it is, once in between about somebody else's call, and then does what then does.
func tells(n int, then func(token string) act) act {
	return func(w http.ResponseWriter, r *http.Request, id string) {
		var m struct {
			Params struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		token := string(m.Params.Meta.ProgressToken)
		if token == "" {
			answerWith(w, id, `{"resultType":"complete","content":[{"type":"text","text":"nobody listens"}]}`)
			return
		}
		said := func(token string, i int) string {
			return event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d.50,"total":9007199254740993,"progressToken":%s,"message":"%s"}}`,
				i, token, r.Header.Get("Idempotency-Key")))
		}
		var parts []string
		for i := range n {
			parts = append(parts, said(token, i+1), said(`"another's"`, 99), ": still here\n\n")
		}
		events(parts...)(w, r, id)
		then(token)(w, r, id)
	}
}

// streamed are the messages of an answer that came as a stream.
func streamed(t *testing.T, a answer) []string {
	t.Helper()
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("no stream: %v %s", a.header, a)
	}
	var data []string
	lines := bufio.NewScanner(strings.NewReader(string(a.body)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "data: "):
			data = append(data, strings.TrimPrefix(line, "data: "))
		case line != "" && line != "event: message":
			t.Errorf("a line of another kind: %q", line)
		}
	}
	return data
}

// TestProgressReachesItsCaller: what a tool tells while it works comes to the caller that asked for it, under the token that it
// gave, in both eras; to nobody else, and with nothing of the hop behind. Whatever becomes of stream, tool or
// caller, the call is one call.
func TestProgressReachesItsCaller(t *testing.T) {
	t.Parallel()
	p := newPeer(t, &peer{modern: true})
	s := newSystemWithPeer(t, p)
	done := func(string) act {
		return events(event(rpcResult("ID", `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)))
	}
	for era, d := range eras() {
		x := s.newTenant(t, 100, anythingOf("do"))
		for i, token := range []string{`"tok"`, "7", "9007199254740991", `"\u00e9"`} {
			c := x.doing(fmt.Sprintf("told-%s-%d", era, i))
			c.id = `"request"`
			p.on(`"`+c.key+`"`, tells(3, done))
			d.meta = `,"progressToken":` + token
			data := streamed(t, x.saying(t, d, c))
			if len(data) != 4 {
				t.Fatalf("%s %s: %q", era, token, data)
			}
			for n, message := range data[:3] {
				op := s.operator(t, http.MethodGet, "/v1/operations?wallet="+x.wallet, nil, http.StatusOK).list(t, "items")[i].text(t, "id")
				if strings.Count(message, "progressToken") != 1 || !strings.Contains(message, `"progressToken":`+token+`,`) || !strings.Contains(message, fmt.Sprintf(`"progress":%d.50,"total":9007199254740993`, n+1)) || !strings.Contains(message, `"message":"`+op+`"`) {
					t.Errorf("%s %s: message %d: %s", era, token, n, message)
				}
			}
			last, err := read(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: bodyOf(data[3])})
			if err != nil || string(last.id) != c.id || last.meta.Outcome != "succeeded" || strings.Contains(data[3], "resultType") != d.modern {
				t.Errorf("%s %s: the answer: %v %s", era, token, err, data[3])
			}
			s.receipt(t, last)
			again := x.saying(t, d, c) // nothing runs: nothing is told
			if !again.replayed() || string(again.result) != string(last.result) {
				t.Errorf("%s %s: again: %s", era, token, again)
			}
		}
		for i, token := range []string{"1.5", "null", "{}", "true"} {
			c := x.doing(fmt.Sprintf("no-token-%s-%d", era, i))
			p.on(`"`+c.key+`"`, tells(1, done))
			d.meta = `,"progressToken":` + token
			if a := x.saying(t, d, c); a.header.Get("Content-Type") != "application/json" || a.meta.Outcome != "succeeded" && a.refusal == nil {
				t.Errorf("%s: the token %s: %s", era, token, a)
			}
		}
	}

	// The tool breaks off: the last event says so. The caller breaks off: the call goes on, and its key tells.
	x := s.newTenant(t, 100, anythingOf("do"))
	d := dialect{modern: true, meta: `,"progressToken":"tok"`}
	p.on(`"broken"`, tells(1, func(string) act { return breakOff }))
	data := streamed(t, x.saying(t, d, x.doing("broken")))
	if len(data) != 2 || !strings.Contains(data[1], `"counterfoil/reason":"no_response"`) {
		t.Errorf("a tool that broke off: %q", data)
	}
	gate := make(chan struct{})
	p.on(`"left"`, tells(1, func(string) act {
		return func(w http.ResponseWriter, r *http.Request, id string) {
			<-gate
			done("")(w, r, id)
		}
	}))
	ctx, leave := context.WithCancel(t.Context())
	body, headers := d.say(x.doing("left"))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", x.key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.raw.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "event: message\n" {
		t.Errorf("the first line: %q %v", line, err)
	}
	leave()
	_ = resp.Body.Close()
	close(gate)
	a := x.saying(t, dialect{}, x.doing("left"), "Prefer", "wait=60")
	if a.meta.Outcome != "succeeded" || !a.replayed() || p.did(`"left"`) != 1 || p.did(`"broken"`) != 1 {
		t.Errorf("the call of one that left: %s", a)
	}
	want := state{Balance: 90, Available: 90, Spent: 10, Calls: 2, Charges: 2, Receipts: 2, Operations: 2}
	unchanged(t, "after all", want, x.state(t))
}
