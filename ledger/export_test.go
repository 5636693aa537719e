package ledger

import "time"

// Tenure is what a process knows of its own lease.
type Tenure struct{ tenure tenure }

// Renew records a heartbeat.
func (t *Tenure) Renew(sent, heard time.Time, lease time.Duration) {
	t.tenure.renew(sent, heard, lease)
}

// Now is the current term, and whether the lease holds.
func (t *Tenure) Now(at time.Time, lease time.Duration) (term int64, holds bool) {
	return t.tenure.now(at, lease)
}
