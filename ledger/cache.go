package ledger

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLoad is what those who wait get when a load did not come back.
var errLoad = errors.New("a shared read was broken off")

// loadPatience bounds one load; it outlives the caller that began it.
const loadPatience = 10 * time.Second

// cache keeps what a load found for as long as the load says, and lets concurrent callers share one load.
// Failures are not kept. It holds at most size values.
type cache[K comparable, V any] struct {
	size    int
	mu      sync.Mutex
	entries map[K]*cached[V]
}

func newCache[K comparable, V any](size int) *cache[K, V] { return &cache[K, V]{size: size} }

// cached is one value. value and err are set before ready is closed; until is under the cache's lock, and
// zero while the load runs.
type cached[V any] struct {
	ready chan struct{}
	until time.Time
	value V
	err   error
}

// get returns the kept value or loads it. The load is detached from ctx, because others wait for it too.
func (c *cache[K, V]) get(ctx context.Context, now time.Time, key K, load func(context.Context) (V, time.Duration, error)) (V, error) {
	e, mine := c.entry(now, key)
	if mine {
		c.fill(ctx, now, key, e, load)
	}
	select {
	case <-e.ready:
		return e.value, e.err
	case <-ctx.Done():
		var zero V
		return zero, ctx.Err()
	}
}

// entry returns the entry of a key, and whether the caller is the one who must fill it.
func (c *cache[K, V]) entry(now time.Time, key K) (*cached[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok && (e.until.IsZero() || now.Before(e.until)) {
		return e, false
	}
	if c.entries == nil || len(c.entries) >= c.size {
		c.entries = make(map[K]*cached[V])
	}
	e := &cached[V]{ready: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

func (c *cache[K, V]) fill(ctx context.Context, now time.Time, key K, e *cached[V], load func(context.Context) (V, time.Duration, error)) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadPatience)
	defer cancel()
	var value V
	var ttl time.Duration
	err := errLoad
	// Deferred, so that a load that panics leaves nobody waiting.
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.value, e.err, e.until = value, err, now.Add(ttl)
		if err != nil && c.entries[key] == e {
			delete(c.entries, key)
		}
		close(e.ready)
	}()
	value, ttl, err = load(detached)
}

// reset forgets everything, so that a change made by this process is seen at once. A load that is under way
// began before the change: it answers those who already wait for it, and is not kept.
func (c *cache[K, V]) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = nil
}
