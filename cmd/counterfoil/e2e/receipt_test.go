package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// claims are what a receipt says, as the contract lists it.
type claims struct {
	V       int
	Iss     string
	Iat     int64
	Jti     string
	Sub     string
	Act     struct{ Sub string }
	Permit  struct{ Jti, SHA256 string }
	Call    callClaim
	Outcome string
	Reason  string
	Credits struct{ Authorized, Charged int64 }
	Detail  *detailClaim
	Value   *struct {
		Currency string
		Amount   int64
	}
	Ledger *struct{ Entry string }
	Audit  struct{ Event string }
	Req    struct {
		SHA256      string
		RequestHash string `json:"request_hash"`
	}
	Res *struct {
		SHA256   string
		Bytes    int64
		Scrubbed bool
	}
	Chain struct {
		Seq  int64
		Prev string
	}
	Reconciles *reconcilesClaim
}

type reconcilesClaim struct {
	Jti, Resolution string
	EvidenceSHA256  string `json:"evidence_sha256"`
	ChargedBefore   int64  `json:"charged_before"`
}

type callClaim struct {
	ID         string
	Tool       string
	ToolSHA256 string `json:"tool_sha256"`
	KeySource  string `json:"key_source"`
	StartedMS  int64  `json:"started_ms"`
	EndedMS    int64  `json:"ended_ms"`
}

// detailClaim has one of two shapes: three numbers, or the operation that came first.
type detailClaim struct {
	Limit, Needed, Remaining int64
	OperationID              string `json:"operation_id"`
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// published is the gateway's key set, as anybody can get it.
func (s *system) published(t *testing.T) []byte {
	t.Helper()
	resp, err := s.client.Get(s.url + "/.well-known/jwks.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the published keys: HTTP %d, %v", resp.StatusCode, err)
	}
	return data
}

// publicKey finds a published key, and checks what its entry says.
func publicKey(t *testing.T, jwks []byte, kid, purpose string) ed25519.PublicKey {
	t.Helper()
	var set struct {
		Keys []struct {
			Kty, Crv, X, Kid, Use string
			Alg                   *string
			Purpose               string `json:"cf_purpose"`
			Status                string `json:"cf_status"`
		}
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		if k.Kid != kid {
			continue
		}
		thumbprint := sha256.Sum256(fmt.Appendf(nil, `{"crv":"Ed25519","kty":"OKP","x":%q}`, k.X))
		if k.Kty != "OKP" || k.Crv != "Ed25519" || k.Use != "sig" || k.Alg != nil || k.Purpose != purpose ||
			kid != base64.RawURLEncoding.EncodeToString(thumbprint[:]) {
			t.Fatalf("a published key is not as it should be: %+v", k)
		}
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			t.Fatalf("a published key cannot be read: %+v", k)
		}
		return x
	}
	t.Fatalf("key %s is not published", kid)
	return nil
}

// token takes a compact JWS apart and checks its header and signature against the published keys.
func (s *system) token(t *testing.T, jws, typ, purpose string) (payload []byte) {
	t.Helper()
	parts := strings.Split(jws, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWS", jws)
	}
	header, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	var h struct{ Kid string }
	if err := json.Unmarshal(header, &h); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"alg":"EdDSA","typ":%q,"kid":%q}`, typ, h.Kid); string(header) != want {
		t.Errorf("header %s, want %s", header, want)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	if !ed25519.Verify(publicKey(t, s.published(t), h.Kid, purpose), []byte(parts[0]+"."+parts[1]), signature) {
		t.Error("the signature is wrong")
	}
	payload, err = base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// receipt checks the receipt of an answer, and that it agrees with the answer and with the store.
func (s *system) receipt(t *testing.T, a answer) claims {
	t.Helper()
	if a.meta.Receipt == "" {
		t.Fatalf("no receipt: %s", a)
	}
	var c claims
	d := json.NewDecoder(bytes.NewReader(s.token(t, a.meta.Receipt, "vnd.counterfoil.receipt+jwt", "receipt")))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		t.Fatalf("claims: %v", err)
	}
	if c.V != 1 || c.Iss != s.url || c.Jti != a.meta.ReceiptID || c.Call.ID != a.meta.Operation ||
		c.Outcome != a.meta.Outcome || c.Reason != a.meta.Reason || a.meta.Charged == nil || c.Credits.Charged != *a.meta.Charged {
		t.Errorf("the receipt %+v does not say what the answer says: %s", c, a)
	}
	if c.Call.EndedMS < c.Call.StartedMS || c.Call.StartedMS/1000-c.Iat > 60 || c.Audit.Event == "" || len(c.Req.SHA256) != 64 || len(c.Req.RequestHash) != 64 {
		t.Errorf("the receipt is not whole: %+v", c)
	}
	before := int64(0)
	if c.Reconciles != nil {
		before = c.Reconciles.ChargedBefore
	}
	if (c.Credits.Charged != before) != (c.Ledger != nil) {
		t.Errorf("%d credits, and the ledger entry is %v", c.Credits.Charged, c.Ledger)
	}
	stored := s.operator(t, http.MethodGet, "/v1/receipts/"+c.Jti, nil, http.StatusOK)
	if stored["jws"] != a.meta.Receipt {
		t.Errorf("the stored receipt is another one: %v", stored)
	}
	return c
}
