package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kinds of load. The same generator drives each, so that its own CPU is in every figure alike.
const (
	kindGoverned    = "governed"    // each call under a new key
	kindReplay      = "replay"      // each call under a key that was used before
	kindPassthrough = "passthrough" // the floor: the same body, nothing governs it
)

// account is who pays for a call.
type account struct {
	APIKey string `json:"api_key"`
	Wallet string `json:"wallet"`
	Permit string `json:"permit"`
}

// loadSpec is one phase of load, as the generator's process reads it.
type loadSpec struct {
	URL      string    `json:"url"`
	Kind     string    `json:"kind"`
	Run      string    `json:"run"` // makes the keys of this phase its own
	Clients  int       `json:"clients"`
	Seconds  float64   `json:"seconds"`
	Calls    int       `json:"calls,omitempty"` // stop after so many; 0: time alone
	Rate     float64   `json:"rate,omitempty"`  // open loop, calls a second; 0: closed loop
	Accounts []account `json:"accounts"`
	Replays  int       `json:"replays,omitempty"` // keys 0 … n−1 of Run exist
}

// loadResult is what a phase measured. Latencies are microseconds.
type loadResult struct {
	Calls     int64   `json:"calls"`
	Errors    int64   `json:"errors"`
	FirstErr  string  `json:"first_error,omitempty"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       int64   `json:"p50_us"`
	P99       int64   `json:"p99_us"`
	Max       int64   `json:"max_us"`
	LagP99    int64   `json:"start_lag_p99_us,omitempty"` // open loop: how late calls were started
	CPU       int64   `json:"generator_cpu_us"`           // of the generator, all calls
}

// RunLoad is the generator's process: it reads one loadSpec and writes one loadResult.
func RunLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec loadSpec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("read load spec: %w", err)
	}
	g := newGenerator(spec)
	defer g.client.CloseIdleConnections()
	before := cpuTime()
	result := g.run(ctx)
	result.CPU = cpuTime() - before
	return json.NewEncoder(out).Encode(result)
}

type generator struct {
	spec   loadSpec
	client *http.Client
	next   atomic.Int64

	mu       sync.Mutex
	latency  *hdrhistogram.Histogram
	lag      *hdrhistogram.Histogram
	errors   int64
	firstErr string
}

func newGenerator(spec loadSpec) *generator {
	return &generator{
		spec: spec, client: newClient(time.Minute),
		latency: hdrhistogram.New(1, 60_000_000, 3), lag: hdrhistogram.New(1, 60_000_000, 3),
	}
}

// newClient keeps its connections, as many as there are calls in flight.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}}
}

func (g *generator) run(ctx context.Context) loadResult {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(g.spec.Seconds*float64(time.Second)))
	defer cancel()
	began := time.Now()
	if g.spec.Rate > 0 {
		g.open(ctx, began)
	} else {
		g.closed(ctx)
	}
	took := time.Since(began).Seconds()
	n := g.latency.TotalCount()
	return loadResult{
		Calls: n, Errors: g.errors, FirstErr: g.firstErr, Seconds: took, PerSecond: float64(n) / took,
		P50: g.latency.ValueAtQuantile(50), P99: g.latency.ValueAtQuantile(99), Max: g.latency.Max(),
		LagP99: g.lag.ValueAtQuantile(99),
	}
}

// closed keeps a fixed number of calls in flight: each client sends its next when it has its answer.
func (g *generator) closed(ctx context.Context) {
	var wg sync.WaitGroup
	for range g.spec.Clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := g.next.Add(1) - 1
				if g.spec.Calls > 0 && n >= int64(g.spec.Calls) {
					return
				}
				due := time.Now()
				g.record(due, due, g.call(n))
			}
		})
	}
	wg.Wait()
}

// open starts call i at its due time, whatever the calls before it do, so that a slow answer does not
// hide the wait of those behind it. Gaps are exponential (a Poisson process).
func (g *generator) open(ctx context.Context, began time.Time) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4096)
	due := began
	random := rand.New(rand.NewPCG(1, 2))
	for {
		due = due.Add(time.Duration(random.ExpFloat64() / g.spec.Rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-time.After(time.Until(due)):
		}
		slots <- struct{}{}
		n, at := g.next.Add(1)-1, due
		wg.Go(func() {
			started := time.Now()
			g.record(at, started, g.call(n))
			<-slots
		})
	}
}

func (g *generator) record(due, started time.Time, err error) {
	took, lag := time.Since(due).Microseconds(), started.Sub(due).Microseconds()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if g.errors++; g.firstErr == "" {
			g.firstErr = err.Error()
		}
		return
	}
	_ = g.latency.RecordValue(max(took, 1)) // a value beyond a minute is the client's time-out, an error
	_ = g.lag.RecordValue(max(lag, 1))
}

var (
	wantGoverned = []byte(`"counterfoil/outcome":"succeeded"`)
	wantPlain    = []byte(`"paid`)
)

func (g *generator) call(n int64) error {
	key := n
	if g.spec.Kind == kindReplay {
		key = int64(rand.IntN(g.spec.Replays))
	}
	from := g.spec.Accounts[int(key)%len(g.spec.Accounts)]
	// A call that has begun ends by its own time-out: a phase that ends cuts nothing off.
	req, err := newCall(context.Background(), g.spec.URL, from.APIKey, body(from, g.spec.Run, key, n))
	if err != nil {
		return err
	}
	res, err := exchange(g.client, req)
	if err != nil {
		return err
	}
	return g.judge(res)
}

// newCall is a request as a client of the gateway makes it.
func newCall(ctx context.Context, url, apiKey string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("X-API-Key", apiKey)
	return req, nil
}

func (g *generator) judge(res response) error {
	want := wantGoverned
	if g.spec.Kind == kindPassthrough {
		want = wantPlain
	}
	if res.status != http.StatusOK || !bytes.Contains(res.body, want) {
		return fmt.Errorf("HTTP %d: %.300s", res.status, res.body)
	}
	if g.spec.Kind == kindReplay && res.header.Get("Idempotent-Replayed") != "true" {
		return errors.New("an answer that should have been a replay was not")
	}
	return nil
}

// body is one call: about half a kilobyte, of the kind an agent sends.
func body(from account, run string, key, id int64) []byte {
	b := make([]byte, 0, 640)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"method":"tools/call","params":{"name":"payout","arguments":{"to":"ap@vendor.example","amount":1200,"currency":"USD","invoice_id":"INV-2026-`...)
	b = strconv.AppendInt(b, key, 10)
	b = append(b, `","memo":"Monthly services as agreed; please quote the invoice number with the payment.","cost_centre":"4410"},"mcpContext":{"wallet_id":"`...)
	b = append(append(b, from.Wallet...), `","permit_id":"`...)
	b = append(append(b, from.Permit...), `","idempotency_key":"`...)
	b = append(append(b, run...), '-')
	b = strconv.AppendInt(b, key, 10)
	return append(b, `"}}}`...)
}

// cpuTime is what this process has used so far, in microseconds.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Utime.Sec*1_000_000 + int64(usage.Utime.Usec) + usage.Stime.Sec*1_000_000 + int64(usage.Stime.Usec)
}
