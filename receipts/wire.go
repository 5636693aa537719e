package receipts

import "counterfoil/permits"

// wireClaims is the payload as JSON names it. What is absent reads as zero here;
// ParseClaims finds out by writing the claims again and comparing.
type wireClaims struct {
	Version    int64        `json:"v"`
	Issuer     string       `json:"iss"`
	IssuedAt   int64        `json:"iat"`
	ID         string       `json:"jti"`
	Wallet     string       `json:"sub"`
	Actor      wireActor    `json:"act"`
	Permit     wirePermit   `json:"permit"`
	Call       wireCall     `json:"call"`
	Outcome    string       `json:"outcome"`
	Reason     string       `json:"reason"`
	Credits    wireCredits  `json:"credits"`
	Detail     *wireDetail  `json:"detail"`
	Value      *wireValue   `json:"value"`
	Ledger     *wireLedger  `json:"ledger"`
	Audit      wireAudit    `json:"audit"`
	Request    wireRequest  `json:"req"`
	Result     *wireResult  `json:"res"`
	Chain      wireChain    `json:"chain"`
	Reconciles *wireResolve `json:"reconciles"`
}

type wireActor struct {
	Subject string `json:"sub"`
}

type wirePermit struct {
	ID     string `json:"jti"`
	SHA256 string `json:"sha256"`
}

type wireCall struct {
	ID         string `json:"id"`
	Tool       string `json:"tool"`
	ToolSHA256 string `json:"tool_sha256"`
	KeySource  string `json:"key_source"`
	StartedMS  int64  `json:"started_ms"`
	EndedMS    int64  `json:"ended_ms"`
}

type wireCredits struct {
	Authorized int64 `json:"authorized"`
	Charged    int64 `json:"charged"`
}

type wireDetail struct {
	Limit     int64  `json:"limit"`
	Needed    int64  `json:"needed"`
	Remaining int64  `json:"remaining"`
	Operation string `json:"operation_id"`
}

type wireValue struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
}

type wireLedger struct {
	Entry string `json:"entry"`
}

type wireAudit struct {
	Event string `json:"event"`
}

type wireRequest struct {
	SHA256      string `json:"sha256"`
	RequestHash string `json:"request_hash"`
}

type wireResult struct {
	SHA256   string `json:"sha256"`
	Bytes    int64  `json:"bytes"`
	Scrubbed bool   `json:"scrubbed"`
}

type wireChain struct {
	Seq  int64  `json:"seq"`
	Prev string `json:"prev"`
}

type wireResolve struct {
	ID             string `json:"jti"`
	Resolution     string `json:"resolution"`
	EvidenceSHA256 string `json:"evidence_sha256"`
	ChargedBefore  int64  `json:"charged_before"`
}

// into takes the one shape that the members show. What mixes the two does not
// write the same bytes again.
func (d *wireDetail) into(c *Claims) {
	switch {
	case d == nil:
	case d.Operation != "":
		c.DuplicateOf = d.Operation
	default:
		c.Detail = &permits.Detail{Limit: d.Limit, Needed: d.Needed, Remaining: d.Remaining}
	}
}

func (w *wireClaims) claims() *Claims {
	c := &Claims{
		Issuer: w.Issuer, IssuedAt: w.IssuedAt, ID: w.ID, Wallet: w.Wallet, Agent: w.Actor.Subject,
		PermitID: w.Permit.ID, PermitSHA256: w.Permit.SHA256,
		Operation: w.Call.ID, Tool: w.Call.Tool, ToolSHA256: w.Call.ToolSHA256,
		KeySource: w.Call.KeySource, StartedMS: w.Call.StartedMS, EndedMS: w.Call.EndedMS,
		Outcome: Outcome(w.Outcome), Reason: Reason(w.Reason),
		Authorized: w.Credits.Authorized, Charged: w.Credits.Charged,
		AuditEvent:      w.Audit.Event,
		ArgumentsSHA256: w.Request.SHA256, RequestHash: w.Request.RequestHash,
		Seq: w.Chain.Seq, Prev: w.Chain.Prev,
	}
	w.Detail.into(c)
	if v := w.Value; v != nil {
		c.Value = &permits.Value{Currency: v.Currency, Amount: v.Amount}
	}
	if l := w.Ledger; l != nil {
		c.LedgerEntry = l.Entry
	}
	if r := w.Result; r != nil {
		c.Result = &Result{SHA256: r.SHA256, Bytes: r.Bytes, Scrubbed: r.Scrubbed}
	}
	if r := w.Reconciles; r != nil {
		c.Reconciles = &Reconciles{
			ID: r.ID, Resolution: r.Resolution, EvidenceSHA256: r.EvidenceSHA256, ChargedBefore: r.ChargedBefore,
		}
	}
	return c
}
