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

// crew starts the processes of the bench: this program, with other arguments.
type crew struct {
	program string
	dir     string // for their logs
}

// child is a process of the bench. Each part runs in its own, as in production.
type child struct {
	name  string
	cmd   *exec.Cmd
	log   string        // the file of what it complains about
	ended chan struct{} // closed when it has ended
}

// start runs the program again with other arguments. What it prints first is returned when wantLine.
func (w crew) start(ctx context.Context, name string, wantLine bool, args ...string) (*child, string, error) {
	c := &child{name: name, ended: make(chan struct{})}
	c.log = filepath.Join(w.dir, strings.ReplaceAll(name, " ", "-")+".log")
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, "", err
	}
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), w.program, args...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = log
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	_ = log.Close() // the child has its own
	if err != nil {
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

// tail is the end of what the process has written to its log.
func (c *child) tail() string {
	const size = 2000
	file, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > size {
		_, _ = file.Seek(-size, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, size))
	return strings.TrimSpace(string(text))
}

// stop asks the process to end and waits; after 20 s it is killed.
func (c *child) stop() { c.stopWithin(20 * time.Second) }

func (c *child) stopWithin(d time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(d):
		c.kill()
	}
}

// kill ends the process as a loss of power would, and waits.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
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
	token, tokenFile, err := writeToken(dir, "operator")
	if err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "counterfoil.yaml")
	text := fmt.Sprintf(gatewayConfig, listen, database, filepath.Join(dir, "keys"), tokenFile, upstream)
	return file, token, os.WriteFile(file, []byte(text), 0o600)
}

// writeToken makes the token of a part that people have, and its file.
func writeToken(dir, part string) (token, file string, err error) {
	token = "bench-" + part + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-0123456789abcdef0123456789abcdef"
	file = filepath.Join(dir, part+".token")
	return token, file, os.WriteFile(file, []byte(token+"\n"), 0o600)
}

// makeKeys makes the keys that a configuration file names.
func (w crew) makeKeys(ctx context.Context, file string) error {
	if out, err := exec.CommandContext(ctx, w.program, "keys", "new", "--config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("make keys: %w: %s", err, out)
	}
	return nil
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
	return o.do(ctx, http.MethodPost, path, data, answer)
}

func (o operator) get(ctx context.Context, path string, answer any) error {
	return o.do(ctx, http.MethodGet, path, nil, answer)
}

func (o operator) send(ctx context.Context, method, path string, body []byte) (response, error) {
	req, err := http.NewRequestWithContext(ctx, method, o.base+path, bytes.NewReader(body))
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.token)
	return exchange(http.DefaultClient, req)
}

func (o operator) do(ctx context.Context, method, path string, body []byte, answer any) error {
	res, err := o.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	if res.status >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: HTTP %d: %.300s", method, path, res.status, res.body)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(res.body, answer)
}

// response is an answer that was read to its end.
type response struct {
	status int
	header http.Header
	body   []byte
}

// exchange sends a request and reads the whole answer.
func exchange(client *http.Client, req *http.Request) (response, error) {
	res, err := client.Do(req)
	if err != nil {
		return response{}, err
	}
	r := response{status: res.StatusCode, header: res.Header}
	r.body, err = io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	return r, err
}

// fetch reads a URL of one of the children.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := exchange(http.DefaultClient, req)
	if err == nil && res.status != http.StatusOK {
		err = fmt.Errorf("GET %s: HTTP %d", url, res.status)
	}
	return res.body, err
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
