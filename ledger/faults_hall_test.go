package ledger_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"counterfoil/internal/chaosproxy"
	"counterfoil/internal/testdb"
	"counterfoil/ledger"

	"github.com/jackc/pgx/v5"
)

// How many rows run at once (most of the time they wait), and how many stations are kept for the next: the
// test's server has 300 connections for all.
const (
	width = 16
	spare = 8
)

// station is a ledger behind a proxy, where row after row takes place.
type station struct {
	bundle  *bundle
	proxy   *chaosproxy.Proxy
	url     string
	through *ledger.Ledger // behind the proxy
	direct  *ledger.Ledger // sees what is so
	clerk   *pgx.Conn      // asks for the test; nil: not yet
}

func newStation(t *testing.T, b *bundle, direct *ledger.Ledger) *station {
	s := &station{bundle: b, direct: direct}
	s.proxy, s.url = chaosproxy.Start(t, b.url)
	t.Cleanup(func() {
		if err := s.leave(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open starts the ledger behind the proxy.
func (s *station) open(l *lane, f *fault) error {
	through, err := ledger.Open(context.Background(), s.bundle.options(func(o *ledger.Options) { o.URL, o.Readers = s.url, 1 }, l.tune, f.options))
	if err == nil {
		s.through = through
	}
	return err
}

func (l *lane) tune(o *ledger.Options) {
	if l.options != nil {
		l.options(o)
	}
}

func (s *station) close() error {
	if s.through == nil {
		return nil
	}
	s.proxy.Disarm()
	s.proxy.Release()
	through := s.through
	s.through = nil
	return through.Close(context.Background())
}

// leave closes all that the station has open.
func (s *station) leave() error {
	if s.clerk != nil {
		_ = s.clerk.Close(context.Background())
		s.clerk = nil
	}
	return s.close()
}

// hall is where the rows of all lanes run that can share a database.
type hall struct {
	t      *testing.T
	bundle *bundle
	whole  bool // every row, not a choice
	slots  chan struct{}
	lanes  atomic.Int64

	mu   sync.Mutex
	idle map[kind][]*station
}

// kind tells stations apart whose ledgers have other options.
type kind struct {
	lease           time.Duration // 0: as usual
	outwaits, brief bool
	pooled          bool
}

// newHall makes a database with a ledger that looks often for what a silent one has left.
func newHall(t *testing.T) *hall {
	h := &hall{t: t, whole: os.Getenv("COUNTERFOIL_FAULTS") == "all", slots: make(chan struct{}, width), idle: make(map[kind][]*station)}
	h.bundle = setup(t, func(o *ledger.Options) { o.Lease = time.Second })
	t.Cleanup(func() { h.bundle.fsck(t) })
	h.bundle.load(t, poolKeys(0, 5000)...)
	return h
}

func kindOf(r *row) kind {
	k := kind{outwaits: r.fault.outwaits, brief: r.fault.brief}
	if r.lane.options != nil {
		var o ledger.Options
		r.lane.options(&o)
		k.lease, k.pooled = o.Lease, o.OperationKeyPool
	}
	return k
}

func (h *hall) enter(r *row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := kindOf(r)
	if n := len(h.idle[k]); n > 0 {
		r.station, h.idle[k] = h.idle[k][n-1], h.idle[k][:n-1]
		return nil
	}
	r.station = newStation(h.t, h.bundle, h.bundle.ledger)
	return r.station.open(r.lane, &r.fault)
}

// leave keeps the station for another row, unless this one has failed at it.
func (h *hall) leave(r *row, err error) error {
	r.proxy.Disarm()
	if err != nil {
		r.proxy.Down() // whatever still waits
		_ = r.station.leave()
		return err
	}
	if !h.keep(r) {
		return r.station.leave()
	}
	return nil
}

func (h *hall) keep(r *row) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := 0
	for _, list := range h.idle {
		kept += len(list)
	}
	if kept < spare {
		h.idle[kindOf(r)] = append(h.idle[kindOf(r)], r.station)
	}
	return kept < spare
}

// run judges a row as soon as there is room for it.
func (h *hall) run(r *row) {
	h.slots <- struct{}{}
	defer func() { <-h.slots }()
	verdict := errors.New("the row ended without a verdict")
	defer func() { r.verdict <- verdict }()
	if verdict = h.enter(r); verdict == nil {
		verdict = h.leave(r, r.judge())
	}
}

// judge is one row: its course of events, then the oracle.
func (r *row) judge() error {
	r.before = r.proxy.Struck()
	if err := r.lane.run(r); err != nil {
		return err
	}
	return r.check()
}

// startChains lets rows follow each other that cannot share a database with others.
func (h *hall) startChains(t *testing.T, rows []*row) {
	t.Helper()
	chains := make(map[kind][]*row)
	for _, r := range rows {
		chains[kindOf(r)] = append(chains[kindOf(r)], r)
	}
	for _, chain := range chains {
		first := chain[0]
		s := newStation(h.t, newBundle(h.t, testdb.New(h.t)), nil)
		if err := s.open(first.lane, &first.fault); err != nil {
			t.Fatal(err)
		}
		s.bundle.ledger, s.direct = s.through, s.through
		for i, p := range s.bundle.furnish(t, "wal_chain", len(chain)) {
			chain[i].permit, chain[i].station = p, s
		}
		go h.runChain(s, chain)
	}
}

func (h *hall) runChain(s *station, chain []*row) {
	h.slots <- struct{}{}
	defer func() { <-h.slots }()
	for i, r := range chain {
		err := r.judge()
		if i == len(chain)-1 {
			err = errors.Join(err, s.fsck())
		}
		r.verdict <- err
	}
}

func (s *station) fsck() error {
	report, err := ledger.Fsck(context.Background(), s.bundle.url, s.bundle.keys, nil)
	if err == nil && report.FirstFault != nil {
		err = report.FirstFault
	}
	return err
}
