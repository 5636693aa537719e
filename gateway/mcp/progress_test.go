package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"counterfoil/gateway/mcp"
)

// events takes a stream apart; anything that is not one line of data a message fails.
func events(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for part := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(part, "event: message\ndata: ")
		if !ok || strings.ContainsAny(data, "\r\n") || !json.Valid([]byte(data)) {
			t.Fatalf("no event: %q", part)
		}
		list = append(list, data)
	}
	return list
}

// both eras: what a tools/call has in params besides, and in headers.
type speaker struct {
	name, meta string
	headers    []string
}

func speakers(tool string) []speaker {
	return []speaker{
		{"2025-11-25", ``, []string{"MCP-Protocol-Version", "2025-11-25"}},
		{"2026-07-28", version + `,` + caps + `,`, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool}},
	}
}

func (s speaker) call(tool, key, meta, more string) string {
	return `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"` + tool + `","arguments":{},"mcpContext":{` + keyed(key) + `},"_meta":{` +
		strings.TrimSuffix(s.meta+meta, ",") + `}` + more + `}}`
}

func TestProgressIsTold(t *testing.T) {
	t.Parallel()
	up, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"work": func(w http.ResponseWriter, _ *http.Request, q wire) {
			if q.Params.Meta.ProgressToken == nil {
				q.result(w, `{"content":[]}`)
				return
			}
			q.progress(w, `,"progress":0.50,"total":12,"message":"a\nb","x":{"y":[1.0]},"_meta":{"theirs":1,"Counterfoil/receipt":"forged"},"counterfoil/receipt":"forged"`)
			event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"another","progress":9}}`)
			event(w, `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`)
			event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"log"}}`)
			q.progress(w, `,"progress":1`)
			event(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"content":[],"n":1.10}}`)
		},
		"mute": func(w http.ResponseWriter, _ *http.Request, q wire) { q.result(w, `{"content":[]}`) },
	})
	h := newHouse(t, add)
	h.permitFor("work", "mute")
	for _, s := range speakers("work") {
		for i, token := range []string{`"t\u006fken"`, `7`, `-1`, `""`} {
			body := s.call("work", s.name+fmt.Sprint(i), `"progressToken":`+token, "")
			a := h.post(body, s.headers...)
			if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("X-Accel-Buffering") != "no" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %s: %d %v", s.name, token, a.status, a.header)
			}
			list := events(t, a.body)
			want := []string{
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":0.50,"total":12,"message":"a\nb","x":{"y":[1.0]},"_meta":{"theirs":1}}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`,
			}
			if diff := cmp.Diff(want, list[:len(list)-1]); diff != "" {
				t.Errorf("%s, %s: progress (-want +got):\n%s", s.name, token, diff)
			}
			again := h.post(body, s.headers...)
			if again.body != list[len(list)-1] || again.header.Get("Content-Type") != "application/json" || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s, %s: the replay differs: %v %s\nwas %s", s.name, token, again.header, again.body, list[len(list)-1])
			}
		}
		// Who is told nothing gets plain JSON.
		for name, c := range map[string]struct{ tool, token string }{
			"no progress": {"mute", `"progressToken":"t"`}, "not asked": {"work", ``}, "null": {"work", `"progressToken":null`}, "fraction": {"work", `"progressToken":1.5`},
			"object": {"work", `"progressToken":{}`}, "true": {"work", `"progressToken":true`}, "long": {"work", `"progressToken":"` + strings.Repeat("t", 2000) + `"`},
		} {
			headers := speakers(c.tool)[0].headers
			if s.meta != "" {
				headers = speakers(c.tool)[1].headers
			}
			a := h.post(s.call(c.tool, s.name+name, c.token, ""), headers...)
			if a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") == "" || a.text("counterfoil/outcome") != "succeeded" {
				t.Errorf("%s, %s: %v %s", s.name, name, a.header, a.body)
			}
		}
	}
	for _, q := range up.calls() {
		if token := string(q.Params.Meta.ProgressToken); token != "" && token != string(q.ID) {
			t.Errorf("the caller's token went up: %s", token)
		}
	}
	h.clean()
}

// raw opens a connection of its own and sends one call on it.
func (h *house) raw(body string) net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-API-Key: %s\r\nContent-Length: %d\r\n\r\n%s", keyOne, len(body), body)
	if err != nil {
		h.t.Fatal(err)
	}
	return conn
}

// A reader that takes nothing loses progress, and neither the call nor its answer.
func TestASlowReaderSlowsNothing(t *testing.T) {
	t.Parallel()
	const told = 3000
	long := strings.Repeat("x", 8<<10)
	begun := make(chan struct{}, 1)
	_, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"chatty": func(w http.ResponseWriter, _ *http.Request, q wire) {
			begun <- struct{}{}
			for i := range told {
				q.progress(w, fmt.Sprintf(`,"progress":%d,"message":"%s"`, i, long))
			}
			event(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"content":[]}}`)
		},
	})
	h := newHouse(t, add)
	h.permitFor("chatty")
	s := speakers("chatty")[0]
	conn := h.raw(s.call("chatty", "k", `"progressToken":"t"`, ""))
	<-begun
	a := h.post(s.call("chatty", "k", ``, ""), "Prefer", "wait=60")
	for a.reason == "idempotency_in_progress" || a.header.Get("Idempotent-Replayed") == "" {
		a = h.post(s.call("chatty", "k", ``, ""), "Prefer", "wait=60")
	}
	if a.text("counterfoil/outcome") != "succeeded" {
		t.Fatalf("the call of a slow reader: %s", a.body)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(body), err)
	}
	list := events(t, string(body))
	if list[len(list)-1] != a.body {
		t.Errorf("the last event is %s, and the record %s", list[len(list)-1], a.body)
	}
	last := -1
	for _, e := range list[:len(list)-1] {
		var m struct{ Params struct{ Progress int } }
		if err := json.Unmarshal([]byte(e), &m); err != nil || m.Params.Progress <= last {
			t.Fatalf("progress %d comes after %d: %v", m.Params.Progress, last, err)
		}
		last = m.Params.Progress
	}
	if len(list) > told/2 || last != told-1 {
		t.Errorf("%d events of %d were kept, the last of them %d", len(list)-1, told, last)
	}
	h.clean()
}

// A reader that leaves in the middle of the stream leaves a call that runs to its record.
func TestAReaderLeavesTheStream(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	_, add := newScript(t, map[string]func(http.ResponseWriter, *http.Request, wire){
		"long": func(w http.ResponseWriter, r *http.Request, q wire) {
			q.progress(w, `,"progress":1`)
			select {
			case <-gate:
			case <-r.Context().Done(): // our call to the tool was cut
				return
			}
			for i := range 200 {
				q.progress(w, fmt.Sprintf(`,"progress":%d`, 2+i))
			}
			event(w, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"content":[]}}`)
		},
	})
	h := newHouse(t, add)
	h.permitFor("long")
	for _, s := range speakers("long") {
		ctx, hangUp := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/mcp", strings.NewReader(s.call("long", s.name, `"progressToken":1`, "")))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(s.headers); i += 2 {
			req.Header.Set(s.headers[i], s.headers[i+1])
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-API-Key", keyOne)
		resp, err := h.plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 20)
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "event: message\ndata:" {
			t.Fatalf("%q, %v", first, err)
		}
		hangUp()
		resp.Body.Close()
	}
	close(gate)
	for _, s := range speakers("long") {
		a := h.post(s.call("long", s.name, ``, ""), append(s.headers, "Prefer", "wait=30")...)
		if a.text("counterfoil/outcome") != "succeeded" || a.header.Get("Idempotent-Replayed") != "true" || h.claims(a).Charged != price {
			t.Errorf("%s: the call that was left alone: %d %s", s.name, a.status, a.body)
		}
	}
	h.clean()
}

// stuck is a connection that takes nothing until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	begun, release chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.release
	return s.ResponseRecorder.Write(b)
}

func (s *stuck) Flush() {}

func TestTheOldestProgressGivesWay(t *testing.T) {
	t.Parallel()
	w := &stuck{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/mcp", nil), w)
	s := mcp.ProgressTo(c, `"t"`)
	message := strings.Repeat("m", 1000)
	s.Progress(`{"progressToken":1,"progress":0}`)
	<-w.begun
	began := time.Now()
	for i := 1; i <= 5000; i++ {
		s.Progress(fmt.Sprintf(`{"progressToken":1,"progress":%d,"message":"%s"}`, i, message))
	}
	s.Progress(`{"progressToken":1,"progress":6000,"message":"` + strings.Repeat("m", 70<<10) + `"}`) // more than is kept
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("telling took %v", took)
	}
	close(w.release)
	if err := s.Answer("{\"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"result\":{}}"); err != nil {
		t.Fatal(err)
	}
	s.Progress(`{"progressToken":1,"progress":7000}`) // too late
	list := events(t, w.Body.String())
	if len(list) < 50 || len(list) > 64 || !strings.Contains(list[0], `"progress":0}`) || !strings.Contains(list[len(list)-2], `"progress":5000,`) {
		t.Errorf("%d events, from %.90s to %.90s", len(list), list[0], list[len(list)-2])
	}
	if last := list[len(list)-1]; last != `{"jsonrpc":"2.0",   "id":1, "result":{}}` {
		t.Errorf("the answer is %s", last)
	}
}
