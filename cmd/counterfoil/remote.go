package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
)

const (
	defaultServer = "http://127.0.0.1:8080"
	answerTimeout = 30 * time.Second
	maxAnswer     = 64 << 20
	pageSize      = 500
)

// remote speaks the operator API of a running gateway. Its token comes from the environment or from
// a file that only its owner can read, never from the command line, where other users would see it.
type remote struct {
	a         *app
	server    string
	tokenFile string
	asJSON    bool
	key       string
}

// operate gives a family of commands the flags that all of them share.
func (a *app) operate(use, short, example string, members func(r *remote) []*cobra.Command) *cobra.Command {
	r := &remote{a: a}
	c := family(use, short, example, members(r)...)
	server := a.env["COUNTERFOIL_SERVER"]
	if server == "" {
		server = defaultServer
	}
	flags := c.PersistentFlags()
	flags.StringVar(&r.server, "server", server, "URL of the gateway (COUNTERFOIL_SERVER)")
	flags.StringVar(&r.tokenFile, "token-file", "", "file with the operator's or reconciler's token, mode 0600 (else COUNTERFOIL_TOKEN)")
	flags.BoolVar(&r.asJSON, "json", false, "print the gateway's answer as JSON")
	flags.StringVar(&r.key, "idempotency-key", "", "makes a creating command safe to repeat")
	return c
}

func (r *remote) token() (string, error) {
	if r.tokenFile != "" {
		text, err := config.ReadSecret(r.tokenFile)
		if err != nil {
			return "", refused(err)
		}
		return strings.TrimRight(text, "\r\n"), nil
	}
	if t := r.a.env["COUNTERFOIL_TOKEN"]; t != "" {
		return t, nil
	}
	return "", refused(errors.New("no token: set COUNTERFOIL_TOKEN, or give --token-file FILE"))
}

// open sends one request and gives the answer of a success. It is sent once: a repeat is the
// caller's choice, with --idempotency-key.
func (r *remote) open(ctx context.Context, method, path string, query url.Values, body io.Reader, mediaType string) (*http.Response, error) {
	base, err := url.Parse(strings.TrimSuffix(r.server, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, refused(fmt.Errorf("--server %q is not an http or https URL", r.server))
	}
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, base.String()+path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = query.Encode()
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", mediaType)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", base.Host, err)
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return nil, problem(resp)
	}
	return resp, nil
}

// problem makes plain words of a problem document.
func problem(resp *http.Response) error {
	var p struct{ Title, Detail, Reason, Retry string }
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(data, &p) != nil || p.Reason == "" {
		return fmt.Errorf("the gateway answered %s", resp.Status)
	}
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	text = fmt.Sprintf("%s (%s, HTTP %d)", text, p.Reason, resp.StatusCode)
	if p.Retry == "same_key" {
		text += "; safe to repeat as it is"
	}
	return errors.New(text)
}

// object is a JSON object of the operator API. Numbers stay literals: credits reach 2^53−1.
type object map[string]any

func decodeObject(data []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("read the gateway's answer: %w", err)
	}
	return o, nil
}

func (r *remote) ask(ctx context.Context, method, path string, query url.Values, body any) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var sent io.Reader
	mediaType := "application/json"
	switch b := body.(type) {
	case nil:
	case token:
		sent, mediaType = strings.NewReader(string(b)), "application/jwt"
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(data)
	}
	resp, err := r.open(ctx, method, path, query, sent, mediaType)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the gateway's answer: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return object{}, nil
	}
	return decodeObject(data)
}

// token is a body that is a compact JWS, not JSON.
type token string

// list follows the pages until it has limit items, or all.
func (r *remote) list(ctx context.Context, path string, query url.Values, limit int) ([]object, error) {
	if query == nil {
		query = url.Values{}
	}
	var items []object
	for len(items) < limit {
		query.Set("limit", strconv.Itoa(min(limit-len(items), pageSize)))
		page, err := r.ask(ctx, http.MethodGet, path, query, nil)
		if err != nil {
			return nil, err
		}
		listed := objects(page["items"])
		items = append(items, listed...)
		next, _ := page["next"].(string)
		if next == "" || len(listed) == 0 {
			break
		}
		query.Set("after", next)
	}
	return items, nil
}

// objects are the members of a JSON list.
func objects(list any) []object {
	members, _ := list.([]any)
	out := make([]object, 0, len(members))
	for _, one := range members {
		if o, ok := one.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

// download streams an answer to a file, or to the output.
func (r *remote) download(ctx context.Context, path string, query url.Values, file string) error {
	resp, err := r.open(ctx, http.MethodGet, path, query, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if file == "" || file == "-" {
		_, err = io.Copy(r.a.out, resp.Body)
		return err
	}
	return writeWhole(file, resp.Body)
}
