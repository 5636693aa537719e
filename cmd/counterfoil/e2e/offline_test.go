package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReceiptWithOpenSSL: a stranger with openssl and the published keys needs no program of ours.
func TestReceiptWithOpenSSL(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	a := x.succeed(t, x.payout("invoice-1"))
	parts := strings.Split(a.meta.Receipt, ".")
	var header struct{ Kid string }
	if err := json.Unmarshal(unbase64(t, parts[0]), &header); err != nil {
		t.Fatal(err)
	}
	// SubjectPublicKeyInfo of Ed25519 (RFC 8410): a fixed head, then the key.
	spki := append([]byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"), publicKey(t, s.published(t), header.Kid, "receipt")...)
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, string(data))
		return path
	}
	key := file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
	signature := file("signature", unbase64(t, parts[2]))
	verify := func(input []byte) error {
		out, err := exec.CommandContext(t.Context(), "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin",
			"-in", file("input", input), "-sigfile", signature).CombinedOutput()
		if err != nil {
			return fmt.Errorf("openssl: %w: %s", err, out)
		}
		return nil
	}
	input := []byte(parts[0] + "." + parts[1])
	if err := verify(input); err != nil {
		t.Error(err)
	}
	input[len(input)-3] ^= 1
	if err := verify(input); err == nil {
		t.Error("openssl accepts another receipt")
	}
}

func unbase64(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// download gets a file as the operator.
func (s *system) download(t *testing.T, path, mediaType string) []byte {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), mediaType) {
		t.Fatalf("GET %s: HTTP %d, %s, %v: %s", path, resp.StatusCode, resp.Header.Get("Content-Type"), err, data)
	}
	return data
}

// TestBundlesOffline: what was exported over HTTP is judged by the second program with the saved keys alone.
func TestBundlesOffline(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	a := x.succeed(t, x.payout("invoice-1"))
	denied := x
	denied.permit = x.issue(t, terms{grant: object{"tools": []string{"refund"}, "limits": object{"credits": 1}}})
	if d := denied.do(t, denied.payout("invoice-2")); d.meta.Outcome != "denied" {
		t.Fatalf("not denied: %s", d)
	}
	x.succeed(t, x.payout("invoice-3"))
	bundle := s.download(t, "/v1/receipts/"+a.meta.ReceiptID+"/bundle", "application/vnd.counterfoil.bundle+json")
	export := s.download(t, "/v1/receipts/export?wallet="+x.wallet, "application/jsonl")
	stranger := newSystem(t)

	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, string(data))
		return path
	}
	trust := file("jwks.json", s.published(t))
	other := file("other.json", stranger.published(t))
	lines := bytes.SplitAfter(export, []byte("\n"))
	if len(lines) != 4 || len(lines[3]) != 0 {
		t.Fatalf("%d lines of export, want 3", len(lines)-1)
	}
	for name, c := range map[string]struct {
		want int
		args []string
	}{
		"the bundle":               {0, []string{"--trust", trust, "--issuer", s.url, "--require", "permit,content", file("a.bundle.json", bundle)}},
		"the bare receipt":         {0, []string{"--trust", trust, file("a.jws", []byte(a.meta.Receipt))}},
		"the export":               {0, []string{"--trust", trust, "--require", "permit,content,chain", file("all.jsonl", export)}},
		"no trust":                 {2, []string{file("b.bundle.json", bundle)}},
		"trust that is not there":  {2, []string{"--trust", filepath.Join(dir, "nothing"), file("c.bundle.json", bundle)}},
		"another issuer's keys":    {3, []string{"--trust", other, file("d.bundle.json", bundle)}},
		"another issuer":           {1, []string{"--trust", trust, "--issuer", stranger.url, file("e.bundle.json", bundle)}},
		"an empty file":            {3, []string{"--trust", trust, file("f.bundle.json", nil)}},
		"a trimmed bundle":         {3, []string{"--trust", trust, file("g.bundle.json", bundle[:len(bundle)/2])}},
		"an export with a gap":     {4, []string{"--trust", trust, file("gap.jsonl", append(bytes.Clone(lines[0]), lines[2]...))}},
		"an export with a repeat":  {4, []string{"--trust", trust, file("twice.jsonl", append(bytes.Clone(export), lines[1]...))}},
		"a proof that is not made": {2, []string{"--trust", trust, "--require", "inclusion,witness", file("h.bundle.json", bundle)}},
	} {
		if status, out := program(t, "counterfoil-verify", c.args...); status != c.want {
			t.Errorf("%s: status %d, want %d: %s", name, status, c.want, out)
		}
	}
	s.flipped(t, bundle, trust, file)
}

// flipped changes one byte at a time, all over a bundle: none may pass, and one in what was signed or
// hashed must be told from what cannot be read.
func (s *system) flipped(t *testing.T, bundle []byte, trust string, file func(string, []byte) string) {
	t.Helper()
	if status, out := program(t, "counterfoil-verify", "--trust", trust, file("whole.bundle.json", bundle)); status != 0 {
		t.Fatalf("the bundle as it is: %d: %s", status, out)
	}
	invalid := 0
	for i := 0; i < len(bundle); i += max(1, len(bundle)/40) {
		bent := bytes.Clone(bundle)
		bent[i] ^= 1
		status, out := program(t, "counterfoil-verify", "--trust", trust, "--require", "permit,content", file("bent.bundle.json", bent))
		if status != 1 && status != 3 {
			t.Errorf("with byte %d (%q) changed to %q: status %d: %s", i, bundle[i], bent[i], status, out)
		}
		if status == 1 {
			invalid++
		}
	}
	if invalid < 10 {
		t.Errorf("only %d changed bytes are called invalid", invalid)
	}
	for member, want := range map[string]int{`"receipt":"`: 1, `"result_b64":"`: 1, `"arguments_b64":"`: 1, `"permit":"`: 1} {
		at := bytes.Index(bundle, []byte(member))
		if at < 0 {
			t.Errorf("the bundle has no %s", member)
			continue
		}
		// Deep inside the text, but for arguments, which are short: a letter that stays in its alphabet.
		at += len(member) + 4
		if member == `"receipt":"` || member == `"permit":"` {
			at += 300
		}
		bent := bytes.Clone(bundle)
		bent[at] = map[bool]byte{true: 'B', false: 'A'}[bent[at] == 'A']
		if status, out := program(t, "counterfoil-verify", "--trust", trust, "--require", "permit,content", file("bent.bundle.json", bent)); status != want {
			t.Errorf("with %s changed: status %d, want %d: %s", member, status, want, out)
		}
	}
}

// TestKeysRotated: after a rotation and a restart old receipts verify with what is published now.
func TestKeysRotated(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	before := s.published(t)
	r := x.once(t, x.payout("invoice-1"))
	for _, purpose := range []string{"receipt", "permit"} {
		if status, out := program(t, "counterfoil", "keys", "rotate", "--config", s.config, "--purpose", purpose); status != 0 {
			t.Fatalf("keys rotate: %d: %s", status, out)
		}
	}
	s.restart(t)
	if bytes.Equal(before, s.published(t)) {
		t.Error("the published keys are as they were")
	}
	r.same(t, x.do(t, r.call))
	s.receipt(t, r.first)
	fresh := x.succeed(t, x.payout("invoice-2")) // under the permit that the old key signed
	if strings.Split(fresh.meta.Receipt, ".")[0] == strings.Split(r.first.meta.Receipt, ".")[0] {
		t.Error("the new receipt is signed with the old key")
	}
	s.receipt(t, fresh)
	x.permit = x.issue(t, terms{grant: anything()})
	x.succeed(t, x.payout("invoice-3"))
	dir := t.TempDir()
	trust, export := filepath.Join(dir, "jwks.json"), filepath.Join(dir, "all.jsonl")
	writeFile(t, trust, string(s.published(t)))
	writeFile(t, export, string(s.download(t, "/v1/receipts/export?wallet="+x.wallet, "application/jsonl")))
	if status, out := program(t, "counterfoil-verify", "--trust", trust, "--require", "permit,content,chain", export); status != 0 {
		t.Errorf("the export over two keys: %d: %s", status, out)
	}
	writeFile(t, trust, string(before))
	if status, out := program(t, "counterfoil-verify", "--trust", trust, export); status != 3 {
		t.Errorf("the export with keys of before: %d: %s", status, out)
	}
}
