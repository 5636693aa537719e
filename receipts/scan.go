package receipts

import (
	"bytes"
	"strings"

	"counterfoil/permits"
)

// scanClaims reads a payload in the form that AppendPayload writes, which is
// every receipt of this gateway, without reflection: judging a long export costs
// little beside its signatures. Anything else is not ok and takes the general
// way, so this reader may be ignorant but never lenient: the claims it returns
// write exactly the bytes it read.
func scanClaims(payload []byte) (*Claims, bool) {
	s := &scanner{rest: string(payload)}
	c := &Claims{}
	c.Agent = s.text(`{"act":{"sub":`)
	c.AuditEvent = s.text(`},"audit":{"event":`)
	c.EndedMS = s.integer(`},"call":{"ended_ms":`)
	c.Operation = s.text(`,"id":`)
	c.KeySource = s.text(`,"key_source":`)
	c.StartedMS = s.integer(`,"started_ms":`)
	c.Tool = s.text(`,"tool":`)
	c.ToolSHA256 = s.text(`,"tool_sha256":`)
	c.Prev = s.text(`},"chain":{"prev":`)
	c.Seq = s.integer(`,"seq":`)
	c.Authorized = s.integer(`},"credits":{"authorized":`)
	c.Charged = s.integer(`,"charged":`)
	s.literal(`}`)
	s.detail(c)
	c.IssuedAt = s.integer(`,"iat":`)
	c.Issuer = s.text(`,"iss":`)
	c.ID = s.text(`,"jti":`)
	if s.has(`,"ledger":{`) {
		c.LedgerEntry = s.text(`,"ledger":{"entry":`)
		s.literal(`}`)
	} else {
		s.literal(`,"ledger":null`)
	}
	c.Outcome = Outcome(s.text(`,"outcome":`))
	c.PermitID = s.text(`,"permit":{"jti":`)
	c.PermitSHA256 = s.text(`,"sha256":`)
	s.literal(`}`)
	if s.has(`,"reason":`) {
		c.Reason = Reason(s.text(`,"reason":`))
	}
	c.Reconciles = s.reconciles()
	c.RequestHash = s.text(`,"req":{"request_hash":`)
	c.ArgumentsSHA256 = s.text(`,"sha256":`)
	c.Result = s.result()
	c.Wallet = s.text(`,"sub":`)
	s.literal(`,"v":1`)
	if s.has(`,"value":`) {
		c.Value = &permits.Value{Amount: s.integer(`,"value":{"amount":`), Currency: s.text(`,"currency":`)}
		s.literal(`}`)
	}
	s.literal(`}`)
	if s.failed || s.rest != "" {
		return nil, false
	}
	return c, bytes.Equal(payload, c.AppendPayload(make([]byte, 0, len(payload))))
}

func (s *scanner) detail(c *Claims) {
	if !s.has(`,"detail":{`) {
		return
	}
	if s.has(`,"detail":{"operation_id":`) {
		c.DuplicateOf = s.text(`,"detail":{"operation_id":`)
	} else {
		c.Detail = &permits.Detail{
			Limit: s.integer(`,"detail":{"limit":`), Needed: s.integer(`,"needed":`), Remaining: s.integer(`,"remaining":`),
		}
	}
	s.literal(`}`)
}

func (s *scanner) reconciles() *Reconciles {
	if !s.has(`,"reconciles":`) {
		return nil
	}
	r := &Reconciles{
		ChargedBefore:  s.integer(`,"reconciles":{"charged_before":`),
		EvidenceSHA256: s.text(`,"evidence_sha256":`),
		ID:             s.text(`,"jti":`),
		Resolution:     s.text(`,"resolution":`),
	}
	s.literal(`}`)
	return r
}

func (s *scanner) result() *Result {
	s.literal(`}`)
	if s.has(`,"res":null`) {
		s.literal(`,"res":null`)
		return nil
	}
	r := &Result{Bytes: s.integer(`,"res":{"bytes":`)}
	if s.has(`,"scrubbed":`) {
		s.literal(`,"scrubbed":true`)
		r.Scrubbed = true
	}
	r.SHA256 = s.text(`,"sha256":`)
	s.literal(`}`)
	return r
}

// scanner reads expected text from the front of rest; after a failure it reads
// nothing more.
type scanner struct {
	rest   string
	failed bool
}

func (s *scanner) has(lit string) bool { return !s.failed && strings.HasPrefix(s.rest, lit) }

func (s *scanner) literal(lit string) {
	if !s.has(lit) {
		s.failed = true
		return
	}
	s.rest = s.rest[len(lit):]
}

// text reads a string of printable ASCII without escapes after lit.
func (s *scanner) text(lit string) string {
	s.literal(lit)
	s.literal(`"`)
	if s.failed {
		return ""
	}
	for i := range len(s.rest) {
		switch c := s.rest[i]; {
		case c == '"':
			out := s.rest[:i]
			s.rest = s.rest[i+1:]
			return out
		case c < ' ' || c > '~' || c == '\\':
			s.failed = true
			return ""
		}
	}
	s.failed = true
	return ""
}

// integer reads at most sixteen digits after lit: 2^53−1 has sixteen.
func (s *scanner) integer(lit string) int64 {
	s.literal(lit)
	if s.failed {
		return 0
	}
	var n int64
	i := 0
	for ; i < len(s.rest) && i < 16 && s.rest[i] >= '0' && s.rest[i] <= '9'; i++ {
		n = n*10 + int64(s.rest[i]-'0')
	}
	s.failed = i == 0
	s.rest = s.rest[i:]
	return n
}

// until returns what stands between lit and the next occurrence of end.
func (s *scanner) until(lit, end string) string {
	s.literal(lit)
	i := strings.Index(s.rest, end)
	if s.failed || i < 0 {
		s.failed = true
		return ""
	}
	out := s.rest[:i]
	s.rest = s.rest[i:]
	return out
}
