package gateway

import "strings"

// Platforms whose identity is always read. Envelopes cannot speak for them.
const (
	PlatformCodex      = "codex"
	PlatformClaudeCode = "claude_code"
)

// unit parts what a key is made of. No explicit key holds a control character, so that the keys which callers
// give and those which are made here never meet.
const unit = "\x1f"

// HarnessKey is the idempotency key of a call that its harness names: the same call of the same agent at this
// installation has it again, whatever carries it, and nothing else has.
func (g *Gateway) HarnessKey(agent, platform, callID string) string {
	return strings.Join([]string{platform, g.ledger.Installation(), agent, callID}, unit)
}

// HarnessCall takes a key apart that HarnessKey has made; not ok for a key that a caller gave.
func HarnessCall(key string) (platform, callID string, ok bool) {
	parts := strings.Split(key, unit)
	if len(parts) != 4 {
		return "", "", false
	}
	return parts[0], parts[3], true
}

// identityPlatforms are all whose calls are known by their own identity, the built-in ones first.
func (cfg Config) identityPlatforms() []string {
	return append([]string{PlatformCodex, PlatformClaudeCode}, cfg.Platforms...)
}
