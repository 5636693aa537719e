package paytool_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"counterfoil/cmd/paytool/paytool"
	"counterfoil/gateway/upstream"
	"counterfoil/receipts"
)

func serve(t *testing.T, options paytool.Options) (*paytool.Handler, string) {
	t.Helper()
	if options.Journal == "" {
		options.Journal = filepath.Join(t.TempDir(), "journal.jsonl")
	}
	h, err := paytool.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	server.Config.ErrorLog = nil
	t.Cleanup(func() {
		server.Close()
		_ = h.Close()
	})
	return h, server.URL
}

func gateway(t *testing.T, url string) *upstream.Client {
	t.Helper()
	c, err := upstream.New(upstream.Config{URL: url + "/mcp", ForwardKeyHeader: paytool.KeyHeader, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// do calls a tool and returns "outcome reason effects".
func do(c *upstream.Client, h *paytool.Handler, key, tool, arguments string) (string, int) {
	before := len(h.Effects())
	a := c.Call(context.Background(), upstream.Call{Tool: tool, Arguments: []byte(arguments), OperationKey: key, Handle: "op_1"})
	return strings.TrimSpace(string(a.Outcome) + " " + string(a.Reason)), len(h.Effects()) - before
}

func TestTools(t *testing.T) {
	t.Parallel()
	h, url := serve(t, paytool.Options{})
	c := gateway(t, url)
	for _, tt := range []struct {
		tool, arguments, want string
		effects               int
	}{
		{"payout", `{"amount":1200,"to":"ap@vendor.example"}`, "succeeded", 1},
		{"payout", `{"amount":1200,"invoice_id":"inv-1","to":"ap@vendor.example"}`, "succeeded", 1},
		{"payout", `{"amount":0,"to":"ap@vendor.example"}`, "failed upstream_rejected", 0},
		{"payout", `{"amount":1.5,"to":"ap@vendor.example"}`, "failed upstream_rejected", 0},
		{"payout", `{"amount":1200,"to":"a","memo":"x"}`, "failed upstream_rejected", 0},
		{"payout", `{"amount":1200}`, "failed upstream_rejected", 0},
		{"refund", `{"amount":1200,"invoice_id":"inv-1"}`, "succeeded", 1},
		{"refund", `{"amount":1200}`, "failed upstream_rejected", 0},
		{"send_email", `{"bcc":"b@x.example","body":"","subject":"s","to":"a@x.example"}`, "succeeded", 1},
		{"send_email", `{"body":"","subject":"s"}`, "failed upstream_rejected", 0},
		{"slow", `{"seconds":0.01}`, "succeeded", 1},
		{"slow", `{"seconds":601}`, "failed upstream_rejected", 0},
		{"flaky", `{"mode":"ok"}`, "succeeded", 1},
		{"flaky", `{"mode":"error"}`, "failed tool_error", 0},
		{"flaky", `{"mode":"500"}`, "delivery_uncertain upstream_error", 1},
		{"flaky", `{"mode":"drop"}`, "delivery_uncertain no_response", 1},
		{"flaky", `{"mode":"?"}`, "failed upstream_rejected", 0},
		{"payout_status", `{"operation_key":"key"}`, "succeeded", 0},
		{"payout_status", `{"operation_key":""}`, "failed upstream_rejected", 0},
		{"payout_status", `{}`, "failed upstream_rejected", 0},
		{"steal", `{}`, "failed upstream_rejected", 0},
	} {
		if got, effects := do(c, h, "key", tt.tool, tt.arguments); got != tt.want || effects != tt.effects {
			t.Errorf("%s %s: %s, %d effects; want %s, %d", tt.tool, tt.arguments, got, effects, tt.want, tt.effects)
		}
	}
}

func TestListing(t *testing.T) {
	t.Parallel()
	_, url := serve(t, paytool.Options{})
	tools, err := gateway(t, url).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if readOnly := strings.Contains(string(tool.Definition), `"readOnlyHint":true`); readOnly != (tool.Name == "payout_status") {
			t.Errorf("%s", tool.Definition)
		}
	}
	if diff := cmp.Diff([]string{"flaky", "payout", "payout_status", "refund", "send_email", "slow"}, names); diff != "" {
		t.Error(diff)
	}
}

const pay = `{"amount":1200,"to":"ap@vendor.example"}`

func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, dedupe := range []bool{false, true} {
		h, url := serve(t, paytool.Options{Dedupe: dedupe})
		c := gateway(t, url)
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { do(c, h, "same", "payout", pay) })
		}
		calls.Wait()
		do(c, h, "other", "payout", pay)
		do(c, h, "same", "refund", `{"amount":1,"invoice_id":"i"}`)
		do(c, h, "", "payout", pay)
		do(c, h, "", "payout", pay)
		want := map[bool]int{false: 14, true: 5}[dedupe]
		if n := len(h.Effects()); n != want {
			t.Errorf("dedupe %v: %d effects, want %d", dedupe, n, want)
		}
	}
}

// What has been answered is in the file; a line that a crash cut off was not answered.
func TestJournalIsContinued(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	clock := func() time.Time { return time.Unix(1700000000, 0) }
	h, url := serve(t, paytool.Options{Journal: path, Now: clock})
	if got, _ := do(gateway(t, url), h, "k1", "payout", pay); got != "succeeded" {
		t.Fatal(got)
	}
	line := `{"seq":1,"key":"k1","tool":"payout","arguments":` + pay + `,"at":"2023-11-14T22:13:20Z"}` + "\n"
	if text, err := os.ReadFile(path); err != nil || string(text) != line {
		t.Fatalf("%s %v", text, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := do(gateway(t, url), h, "k2", "payout", pay); got != "delivery_uncertain upstream_error" {
		t.Errorf("after Close: %s", got)
	}
	if err := os.WriteFile(path, []byte(line+`{"seq":2,"key`), 0o600); err != nil {
		t.Fatal(err)
	}
	h, url = serve(t, paytool.Options{Journal: path, Now: clock, Dedupe: true})
	do(gateway(t, url), h, "k1", "payout", pay)
	do(gateway(t, url), h, "k2", "payout", pay)
	if text, err := os.ReadFile(path); err != nil || string(text) != line+strings.NewReplacer(`"seq":1`, `"seq":2`, "k1", "k2").Replace(line) {
		t.Errorf("%s %v", text, err)
	}
	for _, broken := range []string{"{}\n", "x\n", line + line} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := paytool.New(paytool.Options{Journal: path}); err == nil {
			t.Errorf("accepted journal %q", broken)
		}
	}
}

func TestJournalRoute(t *testing.T) {
	t.Parallel()
	h, url := serve(t, paytool.Options{})
	do(gateway(t, url), h, "k1", "payout", pay)
	response, err := http.Get(url + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got struct{ Effects []paytool.Effect }
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Effects) != 1 || got.Effects[0].Key != "k1" || string(got.Effects[0].Arguments) != pay {
		t.Errorf("%+v", got)
	}
	for _, request := range []*http.Request{
		httptest.NewRequest(http.MethodPost, url+"/journal", nil),
		func() *http.Request {
			r := httptest.NewRequest(http.MethodPost, url+"/mcp", nil)
			r.Header.Set("Origin", "https://page.example")
			return r
		}(),
	} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, request); w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", request.URL, w.Code)
		}
	}
}

func TestOutcomeIsCountedNotTold(t *testing.T) {
	t.Parallel()
	h, url := serve(t, paytool.Options{})
	a := gateway(t, url).Call(context.Background(), upstream.Call{
		Tool: "payout", Arguments: []byte(`{"amount":7,"to":"a\nb"}`), Handle: "op_1", Actual: "/structuredContent/effect",
	})
	want := `{"content":[{"type":"text","text":"paid 7 to a b (effect 1)"}],"structuredContent":{"effect":1,"repeated":false}}`
	if a.Outcome != receipts.Succeeded || string(a.Result) != want || *a.Actual != int64(len(h.Effects())) {
		t.Errorf("%s/%s %s", a.Outcome, a.Reason, a.Result)
	}
}

// What became of a call is known by its key, also in a journal that is continued, and asking does nothing.
func TestStatusOfACall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	h, url := serve(t, paytool.Options{Journal: path})
	for _, key := range []string{"k1", "k2", "k1", ""} {
		do(gateway(t, url), h, key, "payout", pay)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h, url = serve(t, paytool.Options{Journal: path})
	for key, want := range map[string]string{
		"k1": `{"effect":1,"status":"delivered"}`, "k2": `{"effect":2,"status":"delivered"}`, "k3": `{"status":"not_delivered"}`,
	} {
		a := gateway(t, url).Call(context.Background(), upstream.Call{Tool: "payout_status", Arguments: []byte(`{"operation_key":"` + key + `"}`), Handle: "op_1"})
		if a.Outcome != receipts.Succeeded || !strings.Contains(string(a.Result), `"structuredContent":`+want) {
			t.Errorf("%s: %s/%s %s", key, a.Outcome, a.Reason, a.Result)
		}
	}
	if n := len(h.Effects()); n != 4 {
		t.Errorf("%d effects", n)
	}
}

// TestJournalKeepsBytes: arguments are in the journal as they came, so that they can be hashed.
func TestJournalKeepsBytes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	h, url := serve(t, paytool.Options{Journal: path})
	const arguments = `{"amount":1,"invoice_id":"é/<>&","to":"a"}`
	if got, _ := do(gateway(t, url), h, "key", "payout", arguments); got != "succeeded" {
		t.Fatal(got)
	}
	resp, err := http.Get(url + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var served struct{ Effects []paytool.Effect }
	if err := json.NewDecoder(resp.Body).Decode(&served); err != nil || len(served.Effects) != 1 {
		t.Fatalf("%v, %d effects", err, len(served.Effects))
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(served.Effects[0].Arguments); got != arguments || !strings.Contains(string(file), arguments) {
		t.Errorf("served %s, on disk %s, want %s", got, file, arguments)
	}
}
