package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"counterfoil/cmd/counterfoil/config"
	"counterfoil/gateway"
	"counterfoil/gateway/mcp"
	"counterfoil/gateway/operator"
	"counterfoil/gateway/upstream"
	"counterfoil/internal/jws"
	"counterfoil/ledger"
	"counterfoil/permits"
)

// node is one gateway in this process. It owns its listener, ledger and gateway; the database, which
// outlives them, is its caller's.
type node struct {
	listener net.Listener
	endpoint *endpoint
	ledger   *ledger.Ledger
	gateway  *gateway.Gateway
}

// openNode makes a gateway that has only to be served.
func openNode(ctx context.Context, cfg *config.Config, url string, keys *jws.Keyring, l net.Listener, log *slog.Logger) (_ *node, err error) {
	n := &node{listener: l, endpoint: holdEndpoint(ctx, cfg, l)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
		}
	}()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := gateway.NewMetrics(registry, version())
	signer, err := keys.Active(jws.PurposeReceipt)
	if err != nil {
		return nil, err
	}
	n.ledger, err = ledger.Open(ctx, ledger.Options{
		Now: time.Now,
		URL: url, Issuer: cfg.Issuer, Signer: signer, Signers: keys.Signer, Explain: gateway.Explain,
		Lease: cfg.Limits.Lease, Endpoint: n.endpoint.name, Logger: log,
		QueueSize: cfg.Limits.Queue, Patience: cfg.Limits.Timeouts.Store, Retention: cfg.Limits.Retention,
		OperationKeyPool: cfg.Identity.Pool,
		OnCommit:         metrics.OnCommit, OnInterrupted: metrics.OnInterrupted, OnAbandoned: metrics.OnAbandoned,
		OnUncertain: func(risk ledger.AtRisk) { metrics.SetUncertain(risk, time.Now()) },
	})
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	n.gateway, err = gateway.New(gatewayConfig(cfg), gateway.Deps{
		Ledger: n.ledger, Keyring: keys, Logger: log, Metrics: metrics, Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	mcp.Register(n.gateway)
	operator.Register(n.gateway)
	return n, nil
}

// close gives everything back, last taken first.
func (n *node) close(ctx context.Context) error {
	var faults []error
	if n.gateway != nil {
		n.gateway.Close()
	}
	if n.ledger != nil {
		faults = append(faults, n.ledger.Close(ctx))
	}
	if err := n.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		faults = append(faults, err)
	}
	n.endpoint.release()
	return errors.Join(faults...)
}

// gatewayConfig says the same in the gateway's words.
func gatewayConfig(cfg *config.Config) gateway.Config {
	out := gateway.Config{
		Issuer:          cfg.Issuer,
		Version:         version(),
		Upstreams:       upstreamConfigs(cfg),
		OperatorToken:   cfg.Tokens.Operator.Reveal(),
		ApproverToken:   cfg.Tokens.Approver.Reveal(),
		ReconcilerToken: cfg.Tokens.Reconciler.Reveal(),
		AllowedOrigins:  cfg.AllowedOrigins,
		Platforms:       cfg.Identity.Platforms,
		Diagnostics:     cfg.Identity.Diagnostics,
		Limits: gateway.Limits{
			AgentRate: cfg.Limits.AgentRate, AgentConcurrent: cfg.Limits.AgentConcurrent,
			InFlight: cfg.Limits.InFlight, Connections: cfg.Limits.Connections, InputTTL: cfg.Limits.InputTTL,
		},
		Timeouts: gateway.Timeouts{
			Header: cfg.Limits.Timeouts.Header, Body: cfg.Limits.Timeouts.Body,
			Write: cfg.Limits.Timeouts.Write, Idle: cfg.Limits.Timeouts.Idle,
		},
		MaxPermitLifetime: cfg.Limits.PermitLifetime,
		MaxBody:           cfg.Limits.BodyBytes,
		SettleDeadline:    cfg.Limits.Timeouts.Store,
		CatalogueRefresh:  cfg.Limits.CatalogueRefresh,
	}
	for _, t := range cfg.Tools {
		tool := gateway.Tool{
			Name: t.Name, Upstream: t.Upstream, UpstreamTool: t.UpstreamTool, Price: t.Credits, ActualPointer: t.ActualPointer,
			Scopes: t.Scopes, Recipients: t.Recipients, OperationRef: t.OperationRef, ChargeOnToolError: t.ChargeOnError, MaxResponseBytes: t.MaxResponseBytes,
			DefinitionSHA256: t.DefinitionSHA256,
		}
		if p := t.Probe; p != nil {
			tool.Probe = &gateway.Probe{Tool: p.Tool, Argument: p.Argument, Status: p.Status, After: p.After, Longest: p.Longest, GiveUp: p.GiveUp}
		}
		if t.Value != nil {
			tool.Value = &permits.ValuePointer{Pointer: t.Value.Pointer, Currency: t.Value.Currency}
		}
		out.Tools = append(out.Tools, tool)
	}
	return out
}

func upstreamConfigs(cfg *config.Config) []upstream.Config {
	var out []upstream.Config
	for _, u := range cfg.Upstreams {
		out = append(out, upstream.Config{
			Name: u.Name, URL: u.URL, Command: u.Command, Dir: u.Dir, Environ: u.Environ, Env: u.Env,
			Timeout: u.Timeout, Headers: u.Headers,
			ForwardKeyHeader: u.ForwardKeyHeader, Refusals: u.Refusals, Concurrency: u.Concurrency, Rate: u.Rate,
		})
	}
	return out
}

// checkUpstreams lets the clients judge their own part of a configuration.
func checkUpstreams(cfg *config.Config) error {
	var faults []error
	for _, u := range upstreamConfigs(cfg) {
		client, err := upstream.New(u)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		client.Close()
	}
	return errors.Join(faults...)
}
