package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

var poolColumns = []column{
	{"loaded now", "loaded"},
	{"known before", "known"},
	{"free", "free"},
	{"used", "used"},
	{"in use here", "in_use"},
}

// poolKey is what the gateway takes for an operation key; it is checked here too, so that a mistake is told by its line.
var poolKey = regexp.MustCompile(`^[A-Za-z0-9._~:/+=-]{16,256}$`)

// poolChunk is how many keys go in one request.
const poolChunk = 2000

// operationKeys is "counterfoil operation keys": the pool by which tools know calls.
func (r *remote) operationKeys() *cobra.Command {
	return family("keys", "Operation keys that are loaded beforehand, by which tools know calls", "  counterfoil operation keys load keys.txt\n  counterfoil operation keys list",
		&cobra.Command{
			Use: "load FILE", Short: "Load operation keys, one a line; - is the input", Args: takes("FILE"),
			Long: `Load operation keys, one a line; - is the input.

With "identity: {pool: true}" each new operation takes one, by which its tool knows it. A key is 16 to 256
letters, digits and . _ ~ : / + = -. Loading a key again changes nothing, and a used one is never given again, so that
this command is safe to repeat. Keys are secrets: nothing prints them.`,
			RunE: does(func(ctx context.Context, args []string) error {
				keys, err := readPoolKeys(args[0])
				if err != nil {
					return refused(err)
				}
				return r.loadOperationKeys(ctx, keys)
			}),
		},
		&cobra.Command{
			Use: "list", Short: "Count the operation keys that are free and used", Args: cobra.NoArgs,
			RunE: does(func(ctx context.Context, _ []string) error {
				o, err := r.ask(ctx, http.MethodGet, "/v1/operation-keys", nil, nil)
				if err != nil {
					return err
				}
				return r.sheet(o, poolColumns...)
			}),
		})
}

func readPoolKeys(file string) ([]string, error) {
	if file == "-" {
		return poolKeysOf(os.Stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return poolKeysOf(f)
}

// poolKeysOf reads one key a line. Its errors name lines, never keys.
func poolKeysOf(from io.Reader) ([]string, error) {
	var keys []string
	seen := map[string]int{}
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		key := strings.TrimSpace(lines.Text())
		switch first := seen[key]; {
		case key == "":
			continue
		case !poolKey.MatchString(key):
			return nil, fmt.Errorf("line %d is no operation key: 16 to 256 letters, digits and . _ ~ : / + = -", n)
		case first > 0:
			return nil, fmt.Errorf("line %d is the key of line %d", n, first)
		}
		seen[key] = n
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read operation keys: %w", err)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no operation key in it")
	}
	return keys, nil
}

// wholeNumber reads a count of an answer.
func wholeNumber(v any) int64 {
	literal, _ := v.(json.Number)
	n, _ := literal.Int64() // the gateway's counts are integers
	return n
}

// loadOperationKeys sends the keys in parts. When one fails, the same command again loads what is left.
func (r *remote) loadOperationKeys(ctx context.Context, keys []string) error {
	loaded, known, key := int64(0), int64(0), r.key
	for part := 0; ; part++ {
		send := keys[:min(len(keys), poolChunk)]
		if keys = keys[len(send):]; key != "" {
			r.key = fmt.Sprintf("%s-%d", key, part)
		}
		o, err := r.ask(ctx, http.MethodPost, "/v1/operation-keys", nil, object{"keys": send})
		if err != nil {
			return err
		}
		loaded, known = loaded+wholeNumber(o["loaded"]), known+wholeNumber(o["known"])
		if len(keys) == 0 {
			o["loaded"], o["known"] = loaded, known
			return r.sheet(o, poolColumns...)
		}
	}
}
