package upstream

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	defaultTimeout       = 30 * time.Second
	defaultConcurrency   = 512
	defaultResponseBytes = 4 << 20
	// minSecret is the length in bytes from which a header's value is looked for in answers: shorter
	// ones are found in innocent text all the time.
	minSecret = 6
	// idleTimeout is below the 5 s after which common servers (Node, uvicorn) close idle connections,
	// so that we do not send into one that is just going away.
	idleTimeout    = 4 * time.Second
	connectTimeout = 10 * time.Second
	headBytes      = 64 << 10
	bufferBytes    = 8 << 10
)

// ErrConfig is what every fault New reports is.
var ErrConfig = errors.New("upstream configuration")

// defaultRefusals are the JSON-RPC errors that say a call was refused before it ran.
func defaultRefusals() []int {
	return []int{-32700, -32600, -32601, -32602, -32020, -32021, -32022}
}

// New checks the configuration; it does not touch the network.
func New(config Config) (*Client, error) {
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.Concurrency == 0 {
		config.Concurrency = defaultConcurrency
	}
	if config.Refusals == nil {
		config.Refusals = defaultRefusals()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		config:    config,
		versions:  []string{"2025-11-25", "2025-06-18", "2025-03-26"},
		probeTime: config.Timeout,
		// A server that never answers what it does not know must leave time for the handshake.
		discoverTime: config.Timeout / 2,
		secrets:      slices.Concat(headerSecrets(config.Headers), envSecrets(config.Env)),
		refusals:     make(map[int64]bool, len(config.Refusals)),
	}
	// The longest first: a value is replaced whole before its parts are looked for.
	slices.SortFunc(c.secrets, func(a, b string) int { return len(b) - len(a) })
	if err := c.reach(); err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrConfig, config.Name, err)
	}
	c.slots = make(chan struct{}, config.Concurrency)
	for _, code := range config.Refusals {
		c.refusals[int64(code)] = true
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// reach chooses the way to the server.
func (c *Client) reach() error {
	config := c.config
	if len(config.Command) > 0 {
		path, err := config.checkCommand()
		if err != nil {
			return err
		}
		c.versions = append(c.versions, "2024-11-05") // whose tools are the same; only its HTTP was another
		c.probeTime, c.discoverTime = max(config.Timeout, startTime), discoverTime
		c.carrier = newProgram(c, path)
		return nil
	}
	target, err := config.check()
	if err != nil {
		return err
	}
	c.carrier = newWeb(config, target, &c.memories)
	return nil
}

// checkNumbers is the part of the check that both ways share.
func (config Config) checkNumbers() error {
	if config.Timeout < 0 || config.Concurrency < 0 || config.Rate < 0 {
		return errors.New("timeout, concurrency and rate must not be negative")
	}
	return nil
}

// check reports every fault at once.
func (config Config) check() (*url.URL, error) {
	faults := []error{config.checkNumbers()}
	if len(config.Env) > 0 || config.Dir != "" {
		faults = append(faults, errors.New("a server that is reached by URL has no directory and no environment"))
	}
	target, err := url.Parse(config.URL)
	switch {
	case err != nil:
		faults = append(faults, errors.New("url cannot be parsed"))
	case (target.Scheme != "http" && target.Scheme != "https") || target.Host == "":
		faults = append(faults, errors.New("url needs http or https and a host"))
	case target.User != nil || target.Fragment != "":
		faults = append(faults, errors.New("url holds credentials or a fragment; credentials belong into the headers file"))
	}
	for name, values := range config.Headers {
		if reservedHeader(name) {
			faults = append(faults, fmt.Errorf("header %q is not the configuration's to set", name))
		}
		if !slices.ContainsFunc(values, func(v string) bool { return !validHeaderValue(v) }) {
			continue
		}
		faults = append(faults, fmt.Errorf("header %q has a value that cannot be sent", name))
	}
	if key := config.ForwardKeyHeader; key != "" {
		if reservedHeader(key) {
			faults = append(faults, fmt.Errorf("forward_key_header %q is not the configuration's to set", key))
		}
		if len(config.Headers.Values(key)) > 0 {
			faults = append(faults, fmt.Errorf("forward_key_header %q is among the fixed headers", key))
		}
	}
	return target, errors.Join(faults...)
}

// reservedHeader reports names that are malformed, or that this package writes itself for each hop.
func reservedHeader(name string) bool {
	if !isToken(name) {
		return true
	}
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Host", "Accept", "Accept-Encoding", "Connection", "Expect", "Keep-Alive", "Origin", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Last-Event-Id":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Mcp-")
}

func validHeaderValue(v string) bool {
	for i := range len(v) {
		if (v[i] < ' ' && v[i] != '\t') || v[i] == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is an HTTP field name.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func fixedHeader(configured http.Header) http.Header {
	fixed := http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
		"User-Agent":   {clientName},
	}
	for name, values := range configured {
		fixed[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	return fixed
}

// headerSecrets lists what an upstream may echo of the configured headers: whole values, credentials
// without their scheme, and what a Basic credential encodes.
func headerSecrets(configured http.Header) []string {
	var secrets []string
	add := func(s string) {
		if len(s) >= minSecret && !slices.Contains(secrets, s) {
			secrets = append(secrets, s)
		}
	}
	for name, values := range configured {
		for _, value := range values {
			add(value)
			if !strings.Contains(http.CanonicalHeaderKey(name), "Authorization") {
				continue
			}
			scheme, credential, _ := strings.Cut(value, " ")
			credential = strings.TrimSpace(credential)
			add(credential)
			if plain, err := base64.StdEncoding.DecodeString(credential); err == nil && strings.EqualFold(scheme, "Basic") {
				add(string(plain))
				_, password, _ := strings.Cut(string(plain), ":")
				add(password)
			}
		}
	}
	return secrets
}

// newTransport makes HTTP/1 connections only: on a connection that carries one request at a time, what
// was written can be told apart by request.
func newTransport(concurrency int) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn}, nil
		},
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    concurrency + 2, // and a probe and a listing
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headBytes,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
	}
}
