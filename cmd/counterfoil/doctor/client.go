package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	answerTimeout = 30 * time.Second
	maxAnswer     = 4 << 20
)

// client speaks to one gateway as one agent.
type client struct {
	base, key string
	http      *http.Client
}

func newClient(server, key string) (*client, error) {
	u, err := url.Parse(strings.TrimSuffix(server, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--server %q is not an http or https URL", server)
	}
	return &client{base: u.String(), key: key, http: &http.Client{
		Timeout:       answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func handshakeHeaders() map[string]string {
	return map[string]string{"MCP-Protocol-Version": "2025-11-25"}
}

func (c *client) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	status, data, err := c.do(req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s was answered HTTP %d", path, status)
	}
	if err == nil && json.Unmarshal(data, into) != nil {
		err = fmt.Errorf("%s is not what a gateway answers", path)
	}
	return err
}

func (c *client) post(ctx context.Context, headers map[string]string, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/mcp", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+c.key)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	return c.do(req)
}

func (c *client) do(req *http.Request) (int, []byte, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL, which the report has
		}
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, data, err
}

// call makes one JSON-RPC request and reads its result.
func (c *client) call(ctx context.Context, headers map[string]string, method, params string, into any) error {
	status, data, err := c.post(ctx, headers, fmt.Sprintf(`{"jsonrpc":"2.0","id":"doctor","method":%q,"params":%s}`, method, params))
	if err != nil {
		return err
	}
	a := readAnswer(data)
	switch {
	case a.Error != nil:
		return fmt.Errorf("%s (%s, HTTP %d)", a.Error.Message, a.Error.Data.Reason, status)
	case a.Result == nil:
		return fmt.Errorf("it was answered HTTP %d", status)
	}
	return json.Unmarshal(a.Result, into)
}

// rpcAnswer is what comes back to a JSON-RPC request.
type rpcAnswer struct {
	Result json.RawMessage
	Error  *struct {
		Message string
		Data    struct{ Reason string }
	}
}

func readAnswer(data []byte) rpcAnswer {
	var a rpcAnswer
	if json.Unmarshal(data, &a) != nil {
		return rpcAnswer{}
	}
	return a
}
