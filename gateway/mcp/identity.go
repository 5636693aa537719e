package mcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"counterfoil/gateway"
	"counterfoil/receipts"
)

// The members of `_meta` by which a harness says which call this is. All of them are claimed, never proven:
// they tell one call from another, and nobody who calls from somebody else.
const (
	codexMember    = "callId"
	claudeMember   = "claudecode/toolUseId"
	ownEnvelope    = "counterfoil/platform-invocation"
	hubuEnvelope   = "hubu.dev/platform-invocation"
	maxCallID      = 128 // characters
	maxShownMember = 64  // bytes of a name or a platform that is quoted back
)

// Identity is which call of which harness a request is.
type Identity struct {
	Platform string // "codex", "claude_code", or that of an envelope: the receipt's key_source
	CallID   string
}

// source is one member of `_meta` that names the call.
type source struct {
	member string
	Identity
	fault string // why it cannot be taken; "": it can
}

// evidence is all that `_meta` says about which call this is.
type evidence struct {
	sources  []source
	disabled []string // platforms whose envelopes are passed over: the operator has not enabled them
	near     []string // members that would be an identity but for their case
}

// Identify reads the per-call identity from the `_meta` of a call: exactly one of its sources must be there.
// meta is checked JSON, or nil; platforms are those whose envelopes the operator has enabled. An envelope of
// another platform is as if absent. The refusal says what is missing, malformed or ambiguous.
func Identify(meta []byte, platforms []string) (Identity, *gateway.Refusal) {
	e := readEvidence(meta, platforms)
	switch len(e.sources) {
	case 0:
		return Identity{}, e.missing(platforms)
	case 1:
		s := e.sources[0]
		if s.fault != "" {
			return Identity{}, &gateway.Refusal{
				Reason: receipts.ReasonIdempotencyKeyInvalid,
				Detail: "The call's identity in _meta is not accepted: " + s.member + " " + s.fault + ". " + nothingRan,
			}
		}
		return s.Identity, nil
	}
	members := make([]string, len(e.sources))
	for i, s := range e.sources {
		members[i] = s.member
	}
	return Identity{}, &gateway.Refusal{
		Reason: receipts.ReasonIdentityAmbiguous,
		Detail: fmt.Sprintf("The call is named more than once in _meta, by %s. Exactly one of them may be there, even where they agree; or give an explicit idempotency key, and none of them is looked at. %s",
			strings.Join(members, " and "), nothingRan),
	}
}

func readEvidence(meta []byte, platforms []string) evidence {
	var e evidence
	if !gateway.IsObject(meta) {
		return e
	}
	gateway.Members(meta, func(name, value []byte) bool {
		switch member := string(name); member {
		case codexMember:
			e.plain(member, gateway.PlatformCodex, value)
		case claudeMember:
			e.plain(member, gateway.PlatformClaudeCode, value)
		case ownEnvelope, hubuEnvelope:
			e.envelope(member, value, platforms)
		default:
			// Codex's and others' members are theirs to name: one that looks like them is no identity, and
			// no fault either. Where nothing else names the call, it is told.
			if near := nearName("", name, codexMember, claudeMember, hubuEnvelope); near != "" {
				e.near = append(e.near, shown(near))
			}
		}
		return true
	})
	return e
}

// plain takes a member whose value is the call id.
func (e *evidence) plain(member, platform string, value []byte) {
	s := source{member: member, Identity: Identity{Platform: platform}}
	s.CallID, s.fault = callID(value)
	e.sources = append(e.sources, s)
}

// envelope takes {"platform": "…", "call_id": "…"}, and nothing else.
func (e *evidence) envelope(member string, value []byte, platforms []string) {
	s := source{member: member}
	if !gateway.IsObject(value) {
		s.fault = `must be an object {"platform": "…", "call_id": "…"}`
		e.sources = append(e.sources, s)
		return
	}
	var platform, id []byte
	strange := false
	gateway.Members(value, func(name, value []byte) bool {
		switch string(name) {
		case "platform":
			platform = value
		case "call_id":
			id = value
		default:
			strange = true
		}
		return true
	})
	name, ok := gateway.String(platform)
	switch {
	case !ok:
		s.fault = "must name its platform, as a string"
	case !slices.Contains(platforms, name):
		e.disabled = append(e.disabled, shown(name))
		return
	case strange:
		s.fault = "may have the members platform and call_id only"
	default:
		s.Platform = name
		if s.CallID, s.fault = callID(id); s.fault != "" {
			s.fault = "has no good call_id: it " + s.fault
		}
	}
	e.sources = append(e.sources, s)
}

func callID(value []byte) (id, fault string) {
	id, ok := gateway.String(value)
	if !ok || id == "" || len(id) > maxCallID || strings.IndexFunc(id, notInCallID) >= 0 {
		return "", "must be a string of 1 to 128 letters, digits and . _ : / -"
	}
	return id, ""
}

func notInCallID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-", r)
}

// shown quotes what a caller wrote, so that it can be told in a message: bounded, and without control characters.
func shown(name string) string {
	if len(name) > maxShownMember {
		return strconv.QuoteToASCII(name[:maxShownMember]) + "…"
	}
	return strconv.QuoteToASCII(name)
}

const nothingRan = "Nothing ran, and nothing was charged."

// missing says what the call lacks and who would send it.
func (e evidence) missing(platforms []string) *gateway.Refusal {
	var b strings.Builder
	b.WriteString("The call names no idempotency key, and its _meta does not say which call it is. ")
	for _, p := range e.disabled {
		b.WriteString("It has an envelope of the platform " + p + ", which is not enabled in this gateway: its operator would have to add it to identity.platforms. ")
	}
	for _, n := range e.near {
		b.WriteString("It has a member " + n + ", which is none of these but for its case. ")
	}
	b.WriteString("Codex sends callId, Claude Code sends claudecode/toolUseId, other platforms send an envelope " +
		ownEnvelope + " or " + hubuEnvelope + ` {"platform": "…", "call_id": "…"}`)
	if len(platforms) == 0 {
		b.WriteString(" (here none is enabled)")
	} else {
		b.WriteString(" (enabled here: " + strings.Join(platforms, ", ") + ")")
	}
	b.WriteString(`. Or give a key: params.mcpContext.idempotency_key, the same in _meta["counterfoil/context"], or the header Idempotency-Key. ` +
		"JSON-RPC ids, sessions and progress tokens do not name a call. " + nothingRan)
	return &gateway.Refusal{Reason: receipts.ReasonIdempotencyKeyRequired, Detail: b.String()}
}
