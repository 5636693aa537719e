package ledger_test

import (
	"testing"
	"time"

	"counterfoil/ledger"
)

// A heartbeat is written at some moment between its sending and its answer. Where the lease may have run out by then,
// another gateway may have taken over what was granted before, and a new term begins (design 5).
func TestAHeartbeatThatMayHaveComeTooLateBeginsANewTerm(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	began := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name        string
		sent, heard time.Duration
		renewed     bool // a new term
		until       time.Duration
	}{
		{name: "within the lease", sent: 3 * time.Second, heard: 4 * time.Second, until: 13 * time.Second},
		{name: "at its end", sent: 9 * time.Second, heard: 10 * time.Second, until: 19 * time.Second},
		{name: "sent within it, and heard after it", sent: 9 * time.Second, heard: 11 * time.Second, renewed: true, until: 19 * time.Second},
		{name: "after it", sent: 11 * time.Second, heard: 12 * time.Second, renewed: true, until: 21 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tenure ledger.Tenure
			tenure.Renew(began, began, lease)
			before, _ := tenure.Now(began, lease)
			tenure.Renew(began.Add(c.sent), began.Add(c.heard), lease)
			term, holds := tenure.Now(began.Add(c.until), lease)
			if (term != before) != c.renewed || !holds {
				t.Errorf("term %d after %d, and the lease holds: %v", term, before, holds)
			}
			if _, holds := tenure.Now(began.Add(c.until+1), lease); holds {
				t.Error("the lease holds for longer than it was renewed for")
			}
		})
	}
}
