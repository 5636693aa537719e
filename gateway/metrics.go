package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"counterfoil/ledger"
	"counterfoil/receipts"
)

// Metrics are the numbers of contract 10. No label names a wallet, a permit, an
// agent or a key, so their count is bounded by the catalogue.
type Metrics struct {
	registry *prometheus.Registry

	calls         *prometheus.CounterVec
	replays       *prometheus.CounterVec
	rounds        *prometheus.CounterVec
	charged       *prometheus.CounterVec
	probes        *prometheus.CounterVec
	callSeconds   *prometheus.HistogramVec
	upSeconds     *prometheus.HistogramVec
	overhead      prometheus.Histogram
	batchSize     prometheus.Histogram
	commitSeconds prometheus.Histogram
	inFlight      prometheus.Gauge
	uncertain     prometheus.Gauge
	uncertainAge  prometheus.Gauge
	uncertainSum  prometheus.Gauge
	approvals     prometheus.Gauge
	buildInfo     *prometheus.GaugeVec

	definitionChanges *prometheus.CounterVec
	pinBroken         *prometheus.GaugeVec
}

// NewMetrics registers everything, so that each name is there from the start.
// It observes the ledger as well, and so is made before it.
func NewMetrics(registry *prometheus.Registry, version string) *Metrics {
	seconds := prometheus.ExponentialBucketsRange(0.0005, 60, 18)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "counterfoil", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "counterfoil", Name: name, Help: help, Buckets: buckets}
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "counterfoil", Name: name, Help: help}
	}
	m := &Metrics{
		registry:      registry,
		calls:         counter("calls_total", "Governed calls by outcome; replays are not counted.", "tool", "outcome", "reason"),
		replays:       counter("replays_total", "Answers from what was stored.", "tool"),
		rounds:        counter("input_rounds_total", "Questions of tools that asked for input; their calls have no outcome yet.", "tool"),
		charged:       counter("credits_charged_total", "Credits charged.", "tool"),
		probes:        counter("probes_total", "Questions to probes about lost calls, by what was answered.", "tool", "answer"),
		callSeconds:   prometheus.NewHistogramVec(histogram("call_duration_seconds", "A governed call, from decoding to its record.", seconds), []string{"tool"}),
		upSeconds:     prometheus.NewHistogramVec(histogram("upstream_duration_seconds", "The upstream's part of a call.", seconds), []string{"tool"}),
		overhead:      prometheus.NewHistogram(histogram("gateway_overhead_seconds", "A governed call without the upstream's part.", seconds)),
		batchSize:     prometheus.NewHistogram(histogram("commit_batch_size", "Operations in one transaction.", prometheus.ExponentialBuckets(1, 2, 11))),
		commitSeconds: prometheus.NewHistogram(histogram("commit_duration_seconds", "One transaction of a batch.", seconds)),
		inFlight:      prometheus.NewGauge(gauge("operations_in_flight", "Operations between their checkpoint and their record, in this process.")),
		uncertain:     prometheus.NewGauge(gauge("operations_uncertain", "Operations that wait for a reconciliation.")),
		uncertainAge:  prometheus.NewGauge(gauge("operations_uncertain_oldest_seconds", "How long the oldest of them has waited; 0 where none waits.")),
		uncertainSum:  prometheus.NewGauge(gauge("operations_uncertain_credits", "Credits that are charged for them until they are reconciled.")),
		approvals:     prometheus.NewGauge(gauge("approvals_pending", "Calls that wait for a person's approval.")),
		buildInfo:     prometheus.NewGaugeVec(gauge("build_info", "1, labelled with the version."), []string{"version"}),
	}
	m.definitionChanges = counter("tool_definition_changes_total", "Definitions of a tool that its upstream has changed, as this process saw it.", "tool")
	m.pinBroken = prometheus.NewGaugeVec(gauge("tool_pin_broken",
		"1 where a tool's definition is pinned and is not the one its upstream shows, or has not been seen: the tool is not called."), []string{"tool"})
	registry.MustRegister(m.definitionChanges, m.pinBroken)
	registry.MustRegister(m.calls, m.replays, m.rounds, m.charged, m.probes, m.callSeconds, m.upSeconds, m.overhead,
		m.batchSize, m.commitSeconds, m.inFlight, m.uncertain, m.uncertainAge, m.uncertainSum, m.approvals, m.buildInfo)
	m.buildInfo.WithLabelValues(version).Set(1)
	return m
}

// toolMeters are the meters of one tool, found once.
type toolMeters struct {
	call, upstream prometheus.Observer
	charged        prometheus.Counter
	rounds         prometheus.Counter
	succeeded      prometheus.Counter
	pinBroken      prometheus.Gauge // nil where the tool is not pinned
}

func (m *Metrics) forTool(name string) toolMeters {
	m.replays.WithLabelValues(name)
	return toolMeters{
		call: m.callSeconds.WithLabelValues(name), upstream: m.upSeconds.WithLabelValues(name),
		charged: m.charged.WithLabelValues(name), rounds: m.rounds.WithLabelValues(name), succeeded: m.calls.WithLabelValues(name, "succeeded", ""),
	}
}

// finished counts a governed outcome, once: replays do not come here.
func (m *Metrics) finished(t *entry, op *ledger.Operation, total, upstream time.Duration) {
	if op.Outcome == "succeeded" {
		t.meters.succeeded.Inc()
	} else {
		m.calls.WithLabelValues(t.Name, string(op.Outcome), string(op.Reason)).Inc()
	}
	t.meters.call.Observe(total.Seconds())
	m.overhead.Observe((total - upstream).Seconds())
	if upstream > 0 {
		t.meters.upstream.Observe(upstream.Seconds())
	}
	t.meters.charged.Add(float64(op.Charged))
}

// asked counts a round. The call is counted when it has its outcome.
func (m *Metrics) asked(t *entry) { t.meters.rounds.Inc() }

func (m *Metrics) probed(tool, answer string) { m.probes.WithLabelValues(tool, answer).Inc() }

func (m *Metrics) replayed(tool string) { m.replays.WithLabelValues(tool).Inc() }

// OnCommit records one committed batch; it goes to ledger.Options.
func (m *Metrics) OnCommit(_ string, size int, took time.Duration) {
	m.batchSize.Observe(float64(size))
	m.commitSeconds.Observe(took.Seconds())
}

// OnInterrupted counts an operation that a takeover has settled; the gateway that sent it is gone.
func (m *Metrics) OnInterrupted(tool string) {
	m.calls.WithLabelValues(tool, string(receipts.Uncertain), string(receipts.ReasonGatewayInterrupted)).Inc()
}

// OnAbandoned counts an operation whose tool asked for input, and whose caller did not answer in time.
func (m *Metrics) OnAbandoned(tool string) {
	m.calls.WithLabelValues(tool, string(receipts.Failed), string(receipts.ReasonInputAbandoned)).Inc()
}

// SetUncertain says what waits for a reconciliation, as of now.
func (m *Metrics) SetUncertain(risk ledger.AtRisk, now time.Time) {
	m.uncertain.Set(float64(risk.Count))
	m.uncertainSum.Set(float64(risk.Credits))
	age := 0.0
	if !risk.Oldest.IsZero() {
		age = max(0, now.Sub(risk.Oldest).Seconds())
	}
	m.uncertainAge.Set(age)
}
