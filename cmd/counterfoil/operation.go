package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

var operationColumns = []column{
	{"id", "id"},
	{"state", "state"},
	{"outcome", "outcome"},
	{"reason", "reason"},
	{"tool", "tool"},
	{"wallet", "wallet_id"},
	{"permit", "permit_id"},
	{"agent", "agent_id"},
	{"held (credits)", "credits_held"},
	{"charged (credits)", "credits_charged"},
	{"receipt", "receipt_id"},
	{"created", "created_at"},
}

// operationSheet is all of one operation, with what was decided about it.
var operationSheet = slices.Concat(operationColumns, []column{
	{"finished", "finished_at"},
	{"value (minor units)", "value.amount"},
	{"currency", "value.currency"},
	{"reference", "operation_ref"},
	{"harness", "call_identity.platform"},
	{"call id", "call_identity.call_id"},
	{"operation key", "operation_key"},
	{"late result", "late_result.outcome"},
	{"asked for input", "round.asked_at"},
	{"waits for it until", "round.expires_at"},
	{"resolution", "resolution"},
	{"provider's reference", "reconciliation.provider_reference"},
	{"evidence", "reconciliation.evidence"},
	{"charged before (credits)", "reconciliation.charged_before"},
	{"decided by", "reconciliation.decided_by"},
	{"decided", "reconciliation.decided_at"},
	{"first receipt", "reconciliation.first_receipt_id"},
})

func (a *app) operationCommand() *cobra.Command {
	return a.operate("operation", "Operations: what was asked for, and how it ended", `  counterfoil operation list --wallet wal_ops
  counterfoil operation get op_0198…
  counterfoil operation uncertain
  counterfoil operation reconcile op_0198… --resolution not_delivered --evidence "not on the bank's list of 3 May"`, func(r *remote) []*cobra.Command {
		return []*cobra.Command{
			r.lister("List operations", "/v1/operations", []string{"wallet", "agent", "permit", "state"}, operationColumns...),
			r.getter("OPERATION", "Show an operation, and what was decided about it", "/v1/operations/", operationSheet...),
			r.operationUncertain(), r.operationReconcile(), r.operationRelease(), r.operationKeys(),
		}
	})
}

// finding is what a person says about an uncertain operation.
type finding struct {
	resolution, evidence, file, reference string
	credits                               int64
}

func (d *finding) body(priced bool) (object, error) {
	if d.resolution != "delivered" && d.resolution != "not_delivered" {
		return nil, fmt.Errorf("--resolution %q is neither delivered nor not_delivered", d.resolution)
	}
	if d.resolution == "delivered" && d.reference == "" {
		return nil, errors.New("--resolution delivered needs --provider-reference: what the provider calls this action")
	}
	body := object{"resolution": d.resolution, "evidence": d.evidence}
	if d.file != "" {
		text, err := os.ReadFile(d.file)
		if err != nil {
			return nil, err
		}
		body["evidence"] = string(text)
	}
	optional(body, "provider_reference", d.reference)
	if priced {
		if d.credits < 0 || d.credits > maxCredits {
			return nil, fmt.Errorf("--credits-charged %d is no number of credits", d.credits)
		}
		body["credits_charged"] = d.credits
	}
	return body, nil
}

func (r *remote) operationReconcile() *cobra.Command {
	var d finding
	c := &cobra.Command{
		Use: "reconcile OPERATION", Short: "Decide, once, what became of an uncertain operation", Args: takes("OPERATION"),
		Long: `Decide, once, what became of an uncertain operation.

Look at the tool first: nothing is sent, and a decision is never changed. "not_delivered" gives back the
credits, the call and the value, and frees the operation's reference: the agent may act again, under a new
key. "delivered" keeps them, or less with --credits-charged. The same command again is answered the same
decision; another one is refused, and names the decision there is.

Needs the reconciler token in COUNTERFOIL_TOKEN, which opens nothing else but "operation uncertain".`,
		Example: `  counterfoil operation reconcile op_0198… --resolution not_delivered \
      --evidence "not on the bank's list of 3 May"
  counterfoil operation reconcile op_0198… --resolution delivered \
      --evidence-file statement.txt --provider-reference po_77 --credits-charged 2`,
	}
	f := c.Flags()
	f.StringVar(&d.resolution, "resolution", "", "delivered or not_delivered (required)")
	f.StringVar(&d.evidence, "evidence", "", "how that is known, in words; its hash goes into the receipt")
	f.StringVar(&d.file, "evidence-file", "", "file with these words, taken as they are")
	f.StringVar(&d.reference, "provider-reference", "", "what the provider calls this action (required where delivered)")
	f.Int64Var(&d.credits, "credits-charged", 0, "the final total, at most what was charged (default: that, or 0 where not delivered)")
	_ = c.MarkFlagRequired("resolution")
	c.MarkFlagsOneRequired("evidence", "evidence-file")
	c.MarkFlagsMutuallyExclusive("evidence", "evidence-file")
	c.RunE = does(func(ctx context.Context, args []string) error {
		body, err := d.body(f.Changed("credits-charged"))
		if err != nil {
			return refused(err)
		}
		return r.operationAct(ctx, args[0], "reconcile", body)
	})
	return c
}

func (r *remote) operationRelease() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use: "release-reference OPERATION", Short: "Let the reference that an operation holds be used again", Args: takes("OPERATION"),
		Long: `Let the reference that an operation holds be used again.

Afterwards another key with the same reference may run: the same invoice can be paid again. The operation,
its key and its receipts stay what they are. It is in the audit, with the reason.`,
		Example: `  counterfoil operation release-reference op_0198… --why "the vendor sent the money back"`,
		RunE: does(func(ctx context.Context, args []string) error {
			return r.operationAct(ctx, args[0], "release-reference", object{"why": why})
		}),
	}
	c.Flags().StringVar(&why, "why", "", "the reason, for the audit (required)")
	_ = c.MarkFlagRequired("why")
	return c
}

// operationAct changes an operation and shows what it is then.
func (r *remote) operationAct(ctx context.Context, id, act string, body object) error {
	o, err := r.ask(ctx, http.MethodPost, "/v1/operations/"+url.PathEscape(id)+"/"+act, nil, body)
	if err != nil {
		return err
	}
	return r.sheet(o, operationSheet...)
}
