package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"counterfoil/gateway/upstream"
	"counterfoil/internal/canon"
	"counterfoil/ledger"
	"counterfoil/receipts"
)

const (
	probePause      = time.Second      // between two looks at the queue
	probeLongPause  = 30 * time.Second // while the store is away
	probeBatch      = 32               // questions of one look
	probeConcurrent = 8                // of them at a time
	probeTimeout    = 10 * time.Second
	probeBytes      = 64 << 10 // of an answer
	maxEvidence     = 4 << 10  // bytes of an answer that are kept with the decision
)

// What a probe's answer comes to. The first two are the words of a reconciliation; everything else decides nothing.
const (
	probeUnknown = "unknown"
	probeFailed  = "failed" // there was no answer that says anything
)

func probeAnswers() []string {
	return []string{receipts.Delivered, receipts.NotDelivered, probeUnknown, probeFailed}
}

// prober asks read-only tools what became of calls whose answers were lost, and records what they know. A question
// is no governed call: it has no operation, costs nothing, and never carries an operation key where a call does.
type prober struct {
	tools   map[string]*entry // those that have a probe
	ledger  *ledger.Ledger
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time
}

func (g *Gateway) newProber() *prober {
	p := &prober{tools: map[string]*entry{}, ledger: g.ledger, log: g.log, metrics: g.metrics, now: g.now}
	for name, e := range g.catalogue.byName {
		if e.Probe != nil {
			p.tools[name] = e
		}
	}
	return p
}

// run looks at the queue again and again until ctx ends.
func (p *prober) run(ctx context.Context) {
	wait := probePause
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		asked, err := p.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("probes will be asked again when the store answers", "error", err)
			wait = min(2*max(wait, probePause), probeLongPause)
		case asked == probeBatch:
			wait = 0
		default:
			wait = probePause
		}
	}
}

// round asks what is due. The ledger has written the time of each next try before, so that no other gateway
// asks the same.
func (p *prober) round(ctx context.Context) (asked int, err error) {
	plans := p.plans()
	if len(plans) == 0 {
		return 0, nil
	}
	due, err := p.ledger.DueProbes(ctx, plans, probeBatch)
	if err != nil {
		return 0, err
	}
	slots := make(chan struct{}, probeConcurrent)
	var questions sync.WaitGroup
	for _, q := range due {
		slots <- struct{}{}
		questions.Go(func() {
			defer func() { <-slots }()
			p.ask(ctx, p.tools[q.Tool], q)
		})
	}
	questions.Wait()
	return len(due), nil
}

// plans are those of the probes that their upstreams call read-only: no other is ever asked.
func (p *prober) plans() []ledger.ProbePlan {
	var plans []ledger.ProbePlan
	for name, t := range p.tools {
		if t.probeReadOnly.Load() {
			plans = append(plans, ledger.ProbePlan{Tool: name, First: t.Probe.After, Longest: t.Probe.Longest, GiveUp: t.Probe.GiveUp})
		}
	}
	return plans
}

func (p *prober) ask(ctx context.Context, t *entry, q ledger.Probe) {
	asked := p.now()
	answer := p.question(ctx, t, q)
	said := probeSays(answer, t.Probe.Status)
	if said == probeFailed && ctx.Err() != nil {
		return // the gateway is stopping: the probe has not failed
	}
	p.metrics.probed(t.Name, said)
	p.log.Info("asked what became of an operation", "operation", q.Operation, "tool", t.Name, "probe", t.Probe.Tool,
		"answer", said, "try", q.Tries, "note", answer.Note)
	if said != receipts.Delivered && said != receipts.NotDelivered {
		return
	}
	if err := p.decide(ctx, q.Operation, said, evidenceOf(t, asked, said, answer.Result)); err != nil {
		p.log.Warn("what a probe said was not recorded", "operation", q.Operation, "tool", t.Name, "answer", said, "error", err)
	}
}

// question asks once. The operation key is an argument, in no header: what repeats or refuses calls by that header
// must not take the question for one.
func (p *prober) question(ctx context.Context, t *entry, q ledger.Probe) upstream.Answer {
	ctx, cancel := context.WithTimeout(ctx, min(t.timeout, probeTimeout))
	defer cancel()
	arguments := append(canon.AppendString([]byte{'{'}, t.Probe.Argument), ':')
	arguments = append(canon.AppendString(arguments, q.OperationKey), '}')
	return t.client.Call(ctx, upstream.Call{
		Tool: t.Probe.Tool, Arguments: arguments, Secret: q.OperationKey, Handle: q.Operation, MaxResponseBytes: probeBytes,
	})
}

// probeSays reads the one word of an answer. What could be read in two ways says nothing.
func probeSays(a upstream.Answer, pointer string) string {
	if a.Outcome != receipts.Succeeded || canon.Check(a.Result) != nil {
		return probeFailed
	}
	value, _ := canon.Lookup(a.Result, pointer)
	switch word, _ := String(value); word {
	case receipts.Delivered, receipts.NotDelivered, probeUnknown:
		return word
	}
	return probeFailed
}

var errContradiction = errors.New("the tool's own late answer says that it succeeded: a person has to decide")

// decide records what the probe knows. A person who was faster has decided.
func (p *prober) decide(ctx context.Context, operation, resolution, evidence string) error {
	if resolution == receipts.NotDelivered {
		op, err := p.ledger.Operation(ctx, operation, nil)
		if err != nil {
			return err
		}
		if op.Late != nil && op.Late.Outcome == receipts.Succeeded {
			return errContradiction
		}
	}
	_, err := p.ledger.Administer(ctx, ledger.Act{Actor: "probe"}, func(ctx context.Context, a *ledger.Admin) (ledger.Answer, error) {
		_, err := a.Reconcile(ctx, ledger.Reconciliation{Operation: operation, Resolution: resolution, Evidence: evidence})
		return ledger.Answer{}, err
	})
	if errors.Is(err, ledger.ErrDecided) {
		return nil
	}
	return err
}

// evidenceOf says who was asked, when, and what the answer was.
func evidenceOf(t *entry, asked time.Time, said string, answer []byte) string {
	shown, cut := answer, ""
	if len(shown) > maxEvidence {
		shown, cut = shown[:maxEvidence], " (cut here)"
	}
	return fmt.Sprintf("The read-only tool %s of the upstream %s was asked about this operation's key at %s, and said %s. SHA-256 of its answer: %s. Its answer: %s%s",
		t.Probe.Tool, t.Upstream, asked.UTC().Format(time.RFC3339), said, canon.SHA256Hex(answer), strings.ToValidUTF8(string(shown), ""), cut)
}
