package operator

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
	"counterfoil/receipts"
)

type receiptWire struct {
	ID      string         `json:"id"`
	JWS     string         `json:"jws"`
	Receipt jsontext.Value `json:"receipt"`
}

// receiptOf shows the claims as the bytes that were signed.
func receiptOf(r *ledger.Receipt) (receiptWire, error) {
	parts := strings.Split(r.Token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	return receiptWire{ID: r.ID, JWS: r.Token, Receipt: payload}, err
}

// receiptFilter reads what to pick from the query, within what the caller may see.
func receiptFilter(c echo.Context, q url.Values) (f ledger.ReceiptFilter, err error) {
	if f.From, err = moment(q, "from"); err != nil {
		return f, err
	}
	if f.To, err = moment(q, "to"); err != nil {
		return f, err
	}
	f.Wallets, err = visible(c, q.Get("wallet"))
	return f, err
}

func (a *api) listReceipts(c echo.Context) error {
	q, err := query(c, "limit", "after", "wallet", "from", "to")
	if err != nil {
		return a.problem(c, err)
	}
	p, err := pageOf(q)
	if err != nil {
		return a.problem(c, err)
	}
	filter, err := receiptFilter(c, q)
	if err != nil {
		return a.problem(c, err)
	}
	list, err := a.ledger.Receipts(c.Request().Context(), filter, p.after, p.ask())
	if err != nil {
		return a.problem(c, err)
	}
	var broken error
	out := listOf(p, list, func(r *ledger.Receipt) string { return r.ID }, func(r *ledger.Receipt) receiptWire {
		wire, err := receiptOf(r)
		if err != nil {
			broken = err
		}
		return wire
	})
	if broken != nil {
		return a.problem(c, broken)
	}
	return a.ok(c, out)
}

// evidence is the receipt of the path, if the caller may see it.
func (a *api) evidence(c echo.Context) (*ledger.Evidence, error) {
	wallets, err := visible(c, "")
	if err != nil {
		return nil, err
	}
	return a.ledger.Evidence(c.Request().Context(), c.Param("id"), wallets)
}

func (a *api) getReceipt(c echo.Context) error {
	e, err := a.evidence(c)
	if err != nil {
		return a.problem(c, err)
	}
	wire, err := receiptOf(&e.Receipt)
	if err != nil {
		return a.problem(c, err)
	}
	return a.ok(c, wire)
}

func (a *api) getReceiptBundle(c echo.Context) error {
	e, err := a.evidence(c)
	if err != nil {
		return a.problem(c, err)
	}
	bundle, err := a.bundler().bundle(c.Request().Context(), e)
	if err != nil {
		return a.problem(c, err)
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="`+e.ID+`.bundle.json"`)
	return c.Blob(http.StatusOK, "application/vnd.counterfoil.bundle+json", bundle)
}

// exportReceipts streams bundles, one a line. What fails after the first byte breaks the connection off, so that a
// part is never taken for the whole.
func (a *api) exportReceipts(c echo.Context) error {
	q, err := query(c, "wallet", "from", "to")
	if err != nil {
		return a.problem(c, err)
	}
	filter, err := receiptFilter(c, q)
	if err != nil {
		return a.problem(c, err)
	}
	w, b := c.Response(), a.bundler()
	w.Header().Set(echo.HeaderContentType, "application/jsonl")
	w.Header().Set(echo.HeaderContentDisposition, `attachment; filename="receipts.jsonl"`)
	ctx := c.Request().Context()
	err = a.ledger.Export(ctx, filter, func(e *ledger.Evidence) error {
		line, err := b.bundle(ctx, e)
		if err != nil {
			return err
		}
		_, err = w.Write(append(line, '\n'))
		return err
	})
	if err == nil {
		if !w.Committed {
			w.WriteHeader(http.StatusOK)
		}
		return nil
	}
	if !w.Committed {
		w.Header().Del(echo.HeaderContentDisposition)
		return a.problem(c, err)
	}
	if ctx.Err() == nil {
		a.g.Logger().Error("an export broke off", "error", err)
	}
	panic(http.ErrAbortHandler)
}

// bundler makes bundles with the keys that each needs, and no more.
type bundler struct {
	ledger *ledger.Ledger
	own    jws.KeySet
	issuer string
	others map[string]jws.KeySet
}

func (a *api) bundler() *bundler {
	return &bundler{ledger: a.ledger, own: a.g.Keyring().Public(), issuer: a.g.Config().Issuer, others: map[string]jws.KeySet{}}
}

func (b *bundler) bundle(ctx context.Context, e *ledger.Evidence) ([]byte, error) {
	keys, err := b.keys(ctx, e)
	if err != nil {
		return nil, err
	}
	out := receipts.Bundle{Receipt: e.Token, Permit: e.Permit, Keys: keys, Content: &receipts.Content{Arguments: e.Arguments, Result: e.Result}}
	if e.Related != "" {
		out.Related = []string{e.Related}
	}
	return out.JSON(), nil
}

// keys are the public keys that the receipts and the permit were signed with, as hints.
func (b *bundler) keys(ctx context.Context, e *ledger.Evidence) ([]byte, error) {
	used, err := b.receiptKeys(e)
	if err != nil {
		return nil, err
	}
	permit, err := jws.Guard(e.Permit, permits.Type, permits.MaxTokenBytes)
	if err != nil {
		return nil, err
	}
	trusted, err := b.permitKeys(ctx, e.Permit)
	if err != nil {
		return nil, err
	}
	if k, ok := trusted.Find(permit.Header.Kid, jws.PurposePermit); ok {
		used = append(used, k)
	}
	set, err := jws.NewKeySet(used...)
	return set.JWKS(), err
}

// receiptKeys are those of the receipt and of the operation's other one: a decision can come after a rotation.
func (b *bundler) receiptKeys(e *ledger.Evidence) ([]jws.Key, error) {
	var used []jws.Key
	for _, token := range []string{e.Token, e.Related} {
		if token == "" {
			continue
		}
		receipt, err := jws.Guard(token, receipts.Type, receipts.MaxTokenBytes)
		if err != nil {
			return nil, err
		}
		k, ok := b.own.Find(receipt.Header.Kid, jws.PurposeReceipt)
		if ok && !slices.ContainsFunc(used, func(u jws.Key) bool { return u.ID == k.ID }) {
			used = append(used, k)
		}
	}
	return used, nil
}

func (b *bundler) permitKeys(ctx context.Context, token string) (jws.KeySet, error) {
	name, err := permits.Issuer(token)
	if err != nil || name == b.issuer {
		return b.own, err
	}
	if keys, ok := b.others[name]; ok {
		return keys, nil
	}
	issuer, err := b.ledger.Issuer(ctx, name)
	if errors.Is(err, ledger.ErrNotFound) {
		return jws.KeySet{}, nil
	}
	if err != nil {
		return jws.KeySet{}, err
	}
	keys, err := issuer.KeySet()
	b.others[name] = keys
	return keys, err
}
