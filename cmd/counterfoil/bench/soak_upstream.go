package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// How the soak's upstream behaves, chosen by the argument `mode`. It acts before it fails, unless the
// name says otherwise.
const (
	modeOK      = ""
	modeSlow    = "slow"    // answers after a while
	modeDrop    = "drop"    // hangs up without an answer
	modeHalf    = "half"    // hangs up in the middle of its answer
	modeStatus  = "500"     // answers HTTP 500
	modeGarbage = "garbage" // answers what is not JSON
	modeSilent  = "silent"  // never answers
	modeFailed  = "failed"  // acts, and says that it failed
	modeUndone  = "undone"  // does not act, and says so
	modeRefused = "refused" // refuses the call before running it
)

// saboteur is the soak's upstream: it fails in every way that a tool can, and keeps a journal of what it has
// done. A line that is written survives the end of the process; nothing is answered before.
type saboteur struct {
	mu      sync.Mutex
	journal *os.File
	open    map[net.Conn]bool
}

// ServeSaboteur runs the process of the soak's upstream at an address until ctx ends.
func ServeSaboteur(ctx context.Context, listen, journal string, out io.Writer) error {
	file, err := openJournal(journal)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // each line has been written
	u := &saboteur{journal: file, open: make(map[net.Conn]bool)}
	var tools []string
	for _, name := range []string{toolPayout, toolFlaky, toolWire} {
		tools = append(tools, fmt.Sprintf(listing, name))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", serveRPC(strings.Join(tools, ","), u.call))
	mux.HandleFunc("POST /cut", func(http.ResponseWriter, *http.Request) { u.cut() })
	return serveHTTP(ctx, listen, mux, u.watch, out)
}

// openJournal cuts off a last line that a kill has left without its end: its effect has never happened.
func openJournal(path string) (*os.File, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole < len(text) {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (u *saboteur) call(w http.ResponseWriter, r *http.Request, call rpcCall) {
	var message struct {
		Params struct {
			Arguments struct {
				Mode    string `json:"mode"`
				Invoice string `json:"invoice_id"`
				WaitMS  int64  `json:"wait_ms"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(call.body, &message); err != nil {
		http.Error(w, "not a call", http.StatusBadRequest)
		return
	}
	arguments := message.Params.Arguments
	switch arguments.Mode {
	case modeRefused:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such vendor"}}`, call.id)
		return
	case modeUndone:
		answer(w, call.id, `{"content":[{"type":"text","text":"not paid"}],"isError":true}`)
		return
	}
	if err := u.act(r.Header.Get("Idempotency-Key"), arguments.Invoice); err != nil {
		panic(fmt.Sprintf("the journal cannot be written: %v", err)) // the call stays unanswered
	}
	u.answer(w, r, call.id, arguments.Mode, time.Duration(arguments.WaitMS)*time.Millisecond)
}

// act writes one effect down, in one write.
func (u *saboteur) act(operationKey, invoice string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, err := fmt.Fprintf(u.journal, "%s %s\n", operationKey, invoice)
	return err
}

func (u *saboteur) answer(w http.ResponseWriter, r *http.Request, id json.RawMessage, mode string, wait time.Duration) {
	switch mode {
	case modeDrop:
		panic(http.ErrAbortHandler)
	case modeHalf:
		w.Header().Set("Content-Length", "1000")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,`, id)
		panic(http.ErrAbortHandler)
	case modeStatus:
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	case modeGarbage:
		_, _ = io.WriteString(w, "paid, more or less")
		return
	case modeSilent:
		<-r.Context().Done()
		return
	case modeFailed:
		answer(w, id, `{"content":[{"type":"text","text":"the bank has not confirmed it"}],"isError":true}`)
		return
	}
	select {
	case <-time.After(wait):
		answer(w, id, paid)
	case <-r.Context().Done():
	}
}

// watch keeps the connections, so that they can be cut.
func (u *saboteur) watch(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(u.open, c)
	default:
		u.open[c] = true
	}
}

// cut breaks every connection, whatever it carries; that of its caller too.
func (u *saboteur) cut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.open {
		_ = c.Close()
	}
}

// effect is one line of the journal.
type effect struct {
	operationKey, invoice string
}

// readJournal gives the effects in their order.
func readJournal(path string) ([]effect, error) {
	list, _, err := readJournalFrom(path, 0)
	return list, err
}

// readJournalFrom gives those whose lines begin at an offset or later, and where the next one will.
func readJournalFrom(path string, offset int64) (list []effect, next int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, offset, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, offset, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	for line := range strings.Lines(string(text[:whole])) {
		key, invoice, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			return nil, offset, fmt.Errorf("%s: this is no effect: %.100q", path, line)
		}
		list = append(list, effect{operationKey: key, invoice: invoice})
	}
	return list, offset + int64(whole), nil
}
