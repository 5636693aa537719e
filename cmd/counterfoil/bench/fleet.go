package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process of the bench. Each part runs in its own, as in production.
type child struct {
	name  string
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{} // closed when it has ended
}

// start runs the program again with other arguments. What it prints first is returned when wantLine.
func start(ctx context.Context, program, name string, wantLine bool, args ...string) (*child, string, error) {
	c := &child{name: name, ended: make(chan struct{})}
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = &c.log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	line := make(chan string, 1)
	go func() {
		reader := bufio.NewReader(out)
		first, _ := reader.ReadString('\n')
		line <- strings.TrimSpace(first)
		_, _ = io.Copy(io.Discard, reader)
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.ended)
	}()
	if !wantLine {
		return c, "", nil
	}
	select {
	case first := <-line:
		if first == "" {
			return nil, "", fmt.Errorf("%s did not start: %s", name, c.tail())
		}
		return c, first, nil
	case <-time.After(20 * time.Second):
		c.stop()
		return nil, "", fmt.Errorf("%s did not start in 20 s: %s", name, c.tail())
	}
}

func (c *child) tail() string {
	text := strings.TrimSpace(c.log.String())
	return text[max(0, len(text)-2000):]
}

// stop asks the process to end and waits; after 20 s it is killed.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// gatewayConfig is the configuration file of the bench's gateway.
const gatewayConfig = `issuer: http://%[1]s
listen: %[1]s
database: {url: %[2]q}
keys: {dir: %[3]q}
tokens: {operator_file: %[4]q}
upstreams:
  - {name: payments, url: %[5]q, timeout: 30s, forward_key_header: Idempotency-Key, concurrency: 1024}
tools:
  - {name: payout, upstream: payments, upstream_tool: payout, credits: 5, scopes: [payments.write],
     value: {pointer: /amount, currency: USD}, recipient: {pointers: [/to]}}
limits: {lease: 15s}
`

// writeConfig lays out the gateway's directory and returns the file and the operator token.
func writeConfig(dir, listen, database, upstream string) (file, token string, err error) {
	token = "bench-operator-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-0123456789abcdef0123456789abcdef"
	tokenFile := filepath.Join(dir, "operator.token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "counterfoil.yaml")
	text := fmt.Sprintf(gatewayConfig, listen, database, filepath.Join(dir, "keys"), tokenFile, upstream)
	return file, token, os.WriteFile(file, []byte(text), 0o600)
}

// freeAddress finds a loopback port that is free now.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// operator calls the gateway's operator API.
type operator struct {
	base, token string
}

func (o operator) post(ctx context.Context, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("POST %s: HTTP %d: %.300s", path, res.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// fetch reads a URL of one of the children.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: HTTP %d", url, res.StatusCode)
	}
	return text, err
}

// awaitReady waits until the gateway takes calls, or says why it does not.
func awaitReady(ctx context.Context, gateway *child, base string) error {
	for range 300 {
		if _, err := fetch(ctx, base+"/readyz"); err == nil {
			return nil
		}
		select {
		case <-gateway.ended:
			return fmt.Errorf("the gateway ended (%s): %s", gateway.cmd.ProcessState, gateway.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("the gateway is not ready after 30 s: %s", gateway.tail())
}
