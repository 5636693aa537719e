package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// effects is what the upstream has done: calls that were executed, and those of a key it had seen before.
type effects struct {
	Executed   int64 `json:"executed"`
	Duplicates int64 `json:"duplicates"`
}

// tool is a plain MCP server over net/http with one tool, so that the upstream costs every contender the
// same and little. It keeps no promise about duplicates: it counts them.
type tool struct {
	mu   sync.Mutex
	seen map[string]bool
	done effects
}

// ServeUpstream runs the upstream's process until ctx ends; it prints its URL when it listens.
func ServeUpstream(ctx context.Context, out io.Writer) error {
	t := &tool{seen: make(map[string]bool)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", serveRPC(fmt.Sprintf(listing, "payout"), func(w http.ResponseWriter, r *http.Request, call rpcCall) {
		t.execute(r.Header.Get("Idempotency-Key"))
		answer(w, call.id, paid)
	}))
	mux.HandleFunc("GET /effects", func(w http.ResponseWriter, _ *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		_ = json.NewEncoder(w).Encode(t.done)
	})
	return serveHTTP(ctx, anyPort, mux, nil, out)
}

// What the bench's tool says when it has acted.
const paid = `{"content":[{"type":"text","text":"paid 12.00 USD to ap@vendor.example"}],"structuredContent":{"status":"paid","amount":1200,"currency":"USD","to":"ap@vendor.example"},"isError":false}`

// listing describes a tool as tools/list does.
const listing = `{"name":%q,"description":"Pays a vendor.","inputSchema":{"type":"object","properties":{"to":{"type":"string"},"amount":{"type":"integer"}}}}`

// rpcCall is one tools/call as the upstream gets it.
type rpcCall struct {
	id   json.RawMessage
	body []byte
}

// serveRPC speaks what MCP a gateway needs; tools is the list of them, act is the tool.
func serveRPC(tools string, act func(http.ResponseWriter, *http.Request, rpcCall)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		var call struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(data, &call); err != nil {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch call.Method {
		case "tools/call":
			act(w, r, rpcCall{id: call.ID, body: data})
		case "tools/list":
			answer(w, call.ID, `{"tools":[`+tools+`]}`)
		case "initialize":
			answer(w, call.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`)
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, call.ID)
		}
	}
}

func answer(w io.Writer, id json.RawMessage, result string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (t *tool) execute(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Executed++
	if key == "" {
		return // a pass-through sends none
	}
	if t.seen[key] {
		t.done.Duplicates++
	}
	t.seen[key] = true
}

// ServePassthrough runs the floor's process: it forwards a call and its answer, and governs nothing.
func ServePassthrough(ctx context.Context, upstream string, out io.Writer) error {
	client := newClient(time.Minute)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		if err := forward(client, upstream, w, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	return serveHTTP(ctx, anyPort, mux, nil, out)
}

func forward(client *http.Client, upstream string, w http.ResponseWriter, r *http.Request) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, upstream, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", r.Header.Get("Accept"))
	res, err := exchange(client, req)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", res.header.Get("Content-Type"))
	w.WriteHeader(res.status)
	_, err = w.Write(res.body)
	return err
}

// anyPort is a loopback port that is free.
const anyPort = "127.0.0.1:0"

// serveHTTP listens, prints the URL of the MCP endpoint and serves until ctx ends. watch is told of connections; it
// may be nil.
func serveHTTP(ctx context.Context, listen string, h http.Handler, watch func(net.Conn, http.ConnState), out io.Writer) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ConnState: watch}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s/mcp\n", listener.Addr()); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
