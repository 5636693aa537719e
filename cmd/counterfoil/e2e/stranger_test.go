package e2e_test

import (
	"fmt"
	"testing"

	"counterfoil/internal/testdb"
)

// TestStrangerCausesNoLookUp: an agent of another wallet cannot learn by time what is stored, because nothing is
// looked up for it. While the operations are locked against every reader, it has its refusal; a call that does look
// up waits.
func TestStrangerCausesNoLookUp(t *testing.T) {
	t.Parallel()
	database := testdb.New(t)
	s := newSystemOn(t, fmt.Sprintf("database: {url: %q}", database), "")
	x := s.newTenant(t, 100, anything())
	r := x.once(t, x.payout("invoice-1"))
	stranger := s.newTenant(t, 100, anything())
	stranger.do(t, r.call) // its key is known to the gateway from now on

	stuck := standStill(t, database, "lock table operations in access exclusive mode")
	owner := make(chan answer, 1)
	go func() { owner <- x.do(t, r.call) }()
	for _, key := range []string{"invoice-1", "invoice-2"} {
		c := r.call
		c.key = key
		if a := stranger.do(t, c); a.reason() != "wallet_forbidden" {
			t.Fatalf("%s: %s", key, a)
		}
	}
	select {
	case a := <-owner:
		t.Fatalf("a call that must look up was answered under the lock: %s", a)
	default:
	}
	stuck.goOn(t)
	r.same(t, receive(t, owner, "the owner's replay"))
}
