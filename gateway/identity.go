package gateway

import (
	"crypto/sha256"
	"unicode"
	"unicode/utf8"

	"counterfoil/internal/canon"
)

// maxKeyRunes bounds an idempotency key, in characters.
const maxKeyRunes = 128

// ValidKey tells whether a text can be an idempotency key. A valid key is
// honoured verbatim: never trimmed, folded or normalised.
func ValidKey(key string) bool { return validText(key, maxKeyRunes) }

// validText tells whether a text of so many characters at most can name something.
func validText(text string, most int) bool {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > most {
		return false
	}
	blank := true
	for _, r := range text {
		if unicode.IsControl(r) {
			return false
		}
		blank = blank && unicode.IsSpace(r)
	}
	return !blank
}

// requestHash is the SHA-256 of the RFC 8785 form of {agent, arguments, permit,
// tool, wallet}: member names in that order, arguments already canonical.
func requestHash(r Request, permit string) [sha256.Size]byte {
	b := make([]byte, 0, len(r.Arguments)+256)
	b = append(b, `{"agent":`...)
	b = canon.AppendString(b, r.Agent.ID)
	b = append(append(b, `,"arguments":`...), r.Arguments...)
	b = append(b, `,"permit":`...)
	b = canon.AppendString(b, permit)
	b = append(b, `,"tool":`...)
	b = canon.AppendString(b, r.Tool)
	b = append(b, `,"wallet":`...)
	b = canon.AppendString(b, r.Wallet)
	b = append(b, '}')
	return sha256.Sum256(b)
}

// identityName returns the first name in canonical arguments that pretends to
// say which call this is, and that the tool's schema does not know.
func identityName(args []byte, known map[string]bool) string {
	depth := 0
	for i := 0; i < len(args); {
		switch args[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := skipString(args, i)
			if end < len(args) && args[end] == ':' {
				if name := args[i+1 : end-1]; identityLike(name, depth) && !known[string(name)] {
					return string(name)
				}
			}
			i = end
			continue
		}
		i++
	}
	return ""
}

// identityLike: in canonical bytes these names have one spelling, without escapes.
func identityLike(name []byte, depth int) bool {
	switch string(name) {
	case "operation_key", "idempotency_key", "callId", "call_id", "tool_use_id", "toolUseId",
		"_meta", "mcpContext", "permit_id", "wallet_id":
		return true
	case "platform", "task_id":
		return depth == 1
	}
	return false
}
