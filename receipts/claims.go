// Package receipts is the signed record of what happened to one operation: its
// content, its place in the wallet's chain, and the file that carries it.
//
// Whatever this package writes, it reads back to the same bytes. It is pure: it
// opens no file, no socket and no clock.
package receipts

import "counterfoil/permits"

const (
	// Type is the only typ header under which a receipt is signed.
	Type = "vnd.counterfoil.receipt+jwt"
	// MaxSigningInput keeps a receipt within what a remote signer takes raw
	// (4,096 bytes), with some room.
	MaxSigningInput = 4000
	// MaxTokenBytes bounds a receipt's text: the signing input, a dot, and the
	// 86 characters of an Ed25519 signature.
	MaxTokenBytes = MaxSigningInput + 1 + 86
	// MaxInteger is the largest integer that every JSON reader keeps exact.
	MaxInteger = 1<<53 - 1
)

// Outcome says how an operation ended.
type Outcome string

// The outcomes of a governed call.
const (
	Succeeded  Outcome = "succeeded"
	Denied     Outcome = "denied"
	Failed     Outcome = "failed"
	Uncertain  Outcome = "delivery_uncertain"
	Reconciled Outcome = "reconciled"
)

// How an uncertain operation was resolved.
const (
	Delivered    = "delivered"
	NotDelivered = "not_delivered"
)

// Claims is the content of one receipt. It is never changed once signed: a later
// decision about the same operation is a receipt of its own.
type Claims struct {
	Issuer   string
	IssuedAt int64 // seconds
	ID       string
	Wallet   string
	Agent    string

	PermitID     string
	PermitSHA256 string // of the permit's JWS text

	Operation  string
	Tool       string
	ToolSHA256 string // of the canonical tool definition in force
	KeySource  string
	StartedMS  int64
	EndedMS    int64

	Outcome    Outcome
	Reason     Reason // "" = absent
	Authorized int64
	Charged    int64 // of a reconciliation: the final total
	Detail     *permits.Detail
	// DuplicateOf is the operation that holds the reference which this one was
	// denied for; "" = none. It and Detail are the two shapes of one member.
	DuplicateOf string
	Value       *permits.Value

	LedgerEntry string // "" = no transfer was made
	AuditEvent  string

	ArgumentsSHA256 string
	RequestHash     string
	Result          *Result // nil = no result was stored

	Seq        int64  // from 1, gap-free per wallet
	Prev       string // ChainHash of the wallet's previous receipt, "" at 1
	Reconciles *Reconciles
}

// Result describes the stored result bytes, before the gateway's _meta members.
type Result struct {
	SHA256   string
	Bytes    int64
	Scrubbed bool // a private key or secret was replaced in it
}

// Reconciles ties a reconciliation to the uncertain receipt it resolves.
type Reconciles struct {
	ID             string
	Resolution     string // Delivered or NotDelivered
	EvidenceSHA256 string
	ChargedBefore  int64
}
