package verify

// Code names one finding, for ever.
type Code string

// The findings. OK is that of a check which passed.
const (
	OK Code = "OK"

	Malformed  Code = "E_MALFORMED"
	Unreadable Code = "E_UNREADABLE"
	Empty      Code = "E_EMPTY"
	Version    Code = "E_VERSION"

	SigBad       Code = "E_SIG_BAD"
	KeyUnknown   Code = "E_KEY_UNKNOWN"
	KeyUntrusted Code = "E_KEY_UNTRUSTED"
	KeyRevoked   Code = "E_KEY_REVOKED"
	KeyWindow    Code = "E_KEY_WINDOW"
	KeyHint      Code = "E_KEY_HINT"
	Typ          Code = "E_TYP"
	HdrCrit      Code = "E_HDR_CRIT"
	DupMember    Code = "E_DUP_MEMBER"
	NotCanonical Code = "E_NOT_CANONICAL"

	BadClaims    Code = "E_CLAIMS"
	Inconsistent Code = "E_INCONSISTENT"
	Issuer       Code = "E_ISSUER"
	IssuerAny    Code = "E_ISSUER_ANY"

	ContentReq     Code = "E_CONTENT_REQ"
	ContentRes     Code = "E_CONTENT_RES"
	ContentMissing Code = "E_CONTENT_MISSING"

	PermitMissing  Code = "E_PERMIT_MISSING"
	PermitHash     Code = "E_PERMIT_HASH"
	PermitSig      Code = "E_PERMIT_SIG"
	PermitInvalid  Code = "E_PERMIT_INVALID"
	PermitMismatch Code = "E_PERMIT_MISMATCH"
	PermitTool     Code = "E_PERMIT_TOOL"
	PermitWindow   Code = "E_PERMIT_WINDOW"
	PermitLimit    Code = "E_PERMIT_LIMIT"

	Related        Code = "E_RELATED"
	Reconciles     Code = "E_RECONCILES"
	RelatedMissing Code = "E_RELATED_MISSING"
	Superseded     Code = "E_SUPERSEDED"

	ProofMissing     Code = "E_PROOF_MISSING"
	ProofUnsupported Code = "E_PROOF_UNSUPPORTED"

	SeqGap    Code = "E_SEQ_GAP"
	Prev      Code = "E_PREV"
	Fork      Code = "E_FORK"
	Duplicate Code = "E_DUPLICATE"
	Totals    Code = "E_TOTALS"
	Bound     Code = "E_BOUND"

	NotReached Code = "E_NOT_REACHED"
)

// Explanation is what a code means and what its reader can do about it.
type Explanation struct {
	Code      Code
	Sentence  string
	Next      string
	Undecided bool // a check that ends so leaves the receipt undecided
}

// Explain finds a code's row.
func Explain(code Code) (Explanation, bool) {
	for _, row := range Explanations() {
		if row.Code == code {
			return row, true
		}
	}
	return Explanation{}, false
}

// Explanations is the one table of codes, in the order in which checks are made.
func Explanations() []Explanation {
	const (
		askAgain  = "Get the file again from the gateway: GET /v1/receipts/{id}/bundle."
		keepBoth  = "Keep the file as it is, and ask the gateway's operator for the receipt by its id."
		notOfHere = "The gateway would not have written this. Keep the file and ask its operator."
	)
	return []Explanation{
		{OK, "The check passed.", "Nothing to do.", false},

		{Malformed, "This is not a bundle and not a receipt: cut off, altered, or something else.", askAgain, true},
		{Unreadable, "The file could not be read.", "Check the name and the permissions.", true},
		{Empty, "There is nothing in it. No receipt is not a valid receipt.", "Check how the file was made.", true},
		{Version, "The format's version is one that this program does not know.", "Use a newer counterfoil-verify.", true},

		{Typ, "The token is of another type: it was not signed as a receipt.", "Give the receipt's own text; a permit is no receipt.", false},
		{HdrCrit, "The token's header demands an extension that receipts do not have.", notOfHere, false},
		{DupMember, "A member name occurs twice in one object, or twice but for letter case, so that two readers could read two things.", notOfHere, false},
		{NotCanonical, "The token is not in its one permitted spelling: encoding, header, numbers or JSON.", "Compare with the original; copying may have changed it. " + askAgain, false},
		{KeyUnknown, "The key that it names is in no trust file.", "Save the gateway's /.well-known/jwks.json over a channel you trust and give it with --trust.", true},
		{KeyUntrusted, "The key that it names is known, from the bundle or for another purpose, but no trust file trusts it for this one.", "A bundle's own keys prove nothing. Compare the key's id with the gateway's /.well-known/jwks.json.", true},
		{KeyRevoked, "The key was revoked: what it signed may be somebody else's.", "Ask the gateway's operator since when the key was compromised.", true},
		{SigBad, "The signature is not the key's over these bytes: the receipt was altered or forged.", keepBoth, false},
		{KeyWindow, "The signature is good, and the receipt is dated after the end of its key's use.", "Ask the gateway's operator when the key was retired, and whether it leaked.", false},
		{KeyHint, "A key in the bundle contradicts the trusted key of the same id: the bundle was altered.", askAgain, true},

		{BadClaims, "It is signed, but has not exactly the members of a receipt.", notOfHere, false},
		{Inconsistent, "The receipt contradicts itself: its outcome, reason, money or times do not go together.", notOfHere, false},
		{Issuer, "The receipt is of another issuer than the one asked for.", "Compare iss with --issuer, letter by letter.", false},
		{IssuerAny, "No --issuer was given: a receipt of any issuer passes, if its key is trusted.", "Give --issuer with the gateway's URL.", false},

		{PermitMissing, "There is no permit with the receipt.", "Give the bundle in place of the bare receipt.", false},
		{PermitHash, "The permit is not the one under which the call ran: its hash is not the receipt's.", askAgain, false},
		{PermitSig, "The permit's signature is not its key's over these bytes.", keepBoth, false},
		{PermitInvalid, "The permit is not one that the gateway could have accepted.", keepBoth, false},
		{PermitMismatch, "The permit is of another wallet, agent or id than the receipt says.", notOfHere, false},
		{PermitTool, "The permit does not grant the tool that was called.", notOfHere, false},
		{PermitWindow, "The call started outside the permit's time.", notOfHere, false},
		{PermitLimit, "The call exceeds a limit of its permit.", notOfHere, false},

		{ContentReq, "The arguments are not those that were hashed.", "Give the exact canonical argument bytes.", false},
		{ContentRes, "The result is not the one that was hashed.", "Give the exact result bytes, without the gateway's own _meta members.", false},
		{ContentMissing, "The content was not given, so its hash was compared with nothing.", "Give a bundle with content, or --arguments and --result.", false},

		{Related, "A receipt beside this one is of another operation.", askAgain, false},
		{Reconciles, "The reconciliation does not fit the receipt that it resolves.", keepBoth, false},
		{RelatedMissing, "The receipt that this one resolves is not with it.", "Get the bundle of the first receipt as well.", false},
		{Superseded, "A later receipt resolves this one: the outcome there counts.", "Read the reconciliation.", false},

		{ProofMissing, "There is no proof that the receipt is in a public log.", "None is made in this version.", false},
		{ProofUnsupported, "There is a log proof, and this version cannot judge it.", "Use a newer counterfoil-verify.", true},

		{SeqGap, "Receipts are missing between two that are here.", "Ask for the missing numbers: GET /v1/receipts/export.", true},
		{Prev, "A receipt does not follow from the one before it: one of them was replaced.", keepBoth, false},
		{Fork, "Two different receipts have one number in a wallet: there are two histories.", keepBoth, false},
		{Duplicate, "A number in a wallet occurs twice.", "Give each receipt once.", false},
		{Totals, "Together the receipts exceed a limit of their permit.", keepBoth, false},
		{Bound, "The set is scattered beyond what this program remembers.", "Give the receipts in the order of their numbers.", true},

		{NotReached, "An earlier check ended the work, so that this one was not made.", "See the checks before it.", false},
	}
}

func (c Code) undecided() bool {
	row, ok := Explain(c)
	return ok && row.Undecided
}

// status is that of a check which ends with the code.
func (c Code) status() Status {
	switch {
	case c == OK:
		return Pass
	case c.undecided():
		return NotChecked
	}
	return Fail
}
