package main

import (
	"counterfoil/receipts"
	"counterfoil/verify"
)

// The shapes of --json and --jsonl.
type wireVerdict struct {
	File         string        `json:"file"`
	Line         int           `json:"line,omitempty"`
	Verdict      string        `json:"verdict"`
	Receipt      *wireReceipt  `json:"receipt,omitempty"`
	Key          *wireKey      `json:"key,omitempty"`
	SupersededBy string        `json:"superseded_by,omitempty"`
	Decision     *wireDecision `json:"decision,omitempty"`
	Checks       []wireCheck   `json:"checks"`
	NotProven    []string      `json:"not_proven"`
}

type wireReceipt struct {
	ID          string     `json:"id"`
	Issuer      string     `json:"issuer"`
	IssuedAt    int64      `json:"issued_at"`
	Wallet      string     `json:"wallet_id"`
	Agent       string     `json:"agent_id"`
	Permit      string     `json:"permit_id"`
	Operation   string     `json:"operation_id"`
	Tool        string     `json:"tool"`
	Outcome     string     `json:"outcome"`
	Reason      string     `json:"reason,omitempty"`
	Resolution  string     `json:"resolution,omitempty"`
	Authorized  int64      `json:"credits_authorized"`
	Charged     int64      `json:"credits_charged"`
	Reconciles  *wireFirst `json:"reconciles,omitempty"`
	DuplicateOf string     `json:"duplicate_of,omitempty"`
	Seq         int64      `json:"seq"`
	StartedMS   int64      `json:"started_ms"`
	EndedMS     int64      `json:"ended_ms"`
}

// wireFirst is what a reconciliation says of the receipt that it resolves.
type wireFirst struct {
	ID             string `json:"id"`
	ChargedBefore  int64  `json:"credits_charged_before"`
	EvidenceSHA256 string `json:"evidence_sha256"`
}

// wireDecision is what the reconciliation beside an uncertain receipt decided.
type wireDecision struct {
	Resolution string `json:"resolution"`
	Charged    int64  `json:"credits_charged"`
}

type wireKey struct {
	ID     string `json:"kid"`
	Status string `json:"status,omitempty"`
	Source string `json:"source"`
}

type wireCheck struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Code   string `json:"code"`
	Says   string `json:"says"`
	Next   string `json:"next,omitempty"`
	Detail string `json:"detail,omitempty"`
}

type wireSummary struct {
	Verdict   string      `json:"verdict"`
	Exit      int         `json:"exit"`
	Receipts  int         `json:"receipts"`
	Valid     int         `json:"valid"`
	Invalid   int         `json:"invalid"`
	Undecided int         `json:"undecided"`
	Set       []wireCheck `json:"set"`
	NotProven []string    `json:"not_proven"`
}

func toWire(d *verify.Verdict) wireVerdict {
	w := wireVerdict{
		File: d.File, Line: d.Line, Verdict: string(d.State),
		Checks: toWireChecks(d.Checks), NotProven: verify.NotProven(),
	}
	if later := d.SupersededBy; later != nil {
		w.SupersededBy = later.ID
		w.Decision = &wireDecision{Resolution: later.Reconciles.Resolution, Charged: later.Charged}
	}
	if k := d.Key; k != nil {
		w.Key = &wireKey{ID: k.ID, Status: k.Status, Source: k.Source}
	}
	if d.Claims != nil {
		w.Receipt = toWireReceipt(d.Claims)
	}
	return w
}

func toWireReceipt(c *receipts.Claims) *wireReceipt {
	w := &wireReceipt{
		ID: c.ID, Issuer: c.Issuer, IssuedAt: c.IssuedAt, Wallet: c.Wallet, Agent: c.Agent,
		Permit: c.PermitID, Operation: c.Operation, Tool: c.Tool,
		Outcome: string(c.Outcome), Reason: string(c.Reason), DuplicateOf: c.DuplicateOf,
		Authorized: c.Authorized, Charged: c.Charged, Seq: c.Seq,
		StartedMS: c.StartedMS, EndedMS: c.EndedMS,
	}
	if r := c.Reconciles; r != nil {
		w.Resolution = r.Resolution
		w.Reconciles = &wireFirst{ID: r.ID, ChargedBefore: r.ChargedBefore, EvidenceSHA256: r.EvidenceSHA256}
	}
	return w
}

func toWireChecks(checks []verify.Check) []wireCheck {
	out := make([]wireCheck, 0, len(checks))
	for _, c := range checks {
		row, _ := verify.Explain(c.Code)
		w := wireCheck{Check: c.Name, Status: string(c.Status), Code: string(c.Code), Says: row.Sentence, Detail: c.Detail}
		if c.Code != verify.OK {
			w.Next = row.Next
		}
		out = append(out, w)
	}
	return out
}
