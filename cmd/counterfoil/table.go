package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// column is one column of a table; its title names the unit where there is one.
type column struct {
	title string
	path  string // dotted, into the object
}

// text finds the value of a column; what is absent or null shows as "-".
func (c column) text(o object) string {
	var at any = map[string]any(o)
	for _, name := range strings.Split(c.path, ".") {
		inner, ok := at.(map[string]any)
		if !ok {
			return "-"
		}
		at = inner[name]
	}
	return shown(at)
}

func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return printable(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			parts[i] = shown(one)
		}
		if len(parts) == 0 {
			return "-"
		}
		return strings.Join(parts, " ")
	case map[string]any:
		data, err := json.Marshal(v)
		if err != nil || len(v) == 0 {
			return "-"
		}
		return string(data)
	default:
		return fmt.Sprint(v)
	}
}

// printable keeps a name that somebody else chose from moving the cursor of this terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029' || c >= '\u202a' && c <= '\u202e' {
			return '\uFFFD'
		}
		return c
	}, s)
}

func (r *remote) printJSON(v any) error {
	e := json.NewEncoder(r.a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table shows what a list command found.
func (r *remote) table(items []object, columns ...column) error {
	if r.asJSON {
		if items == nil {
			items = []object{}
		}
		return r.printJSON(map[string]any{"items": items})
	}
	w := tabwriter.NewWriter(r.a.out, 0, 4, 2, ' ', 0)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = strings.ToUpper(c.title)
	}
	fmt.Fprintln(w, strings.Join(titles, "\t"))
	for _, item := range items {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.text(item)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// sheet shows one object, a line for each of its members.
func (r *remote) sheet(o object, columns ...column) error {
	if r.asJSON {
		return r.printJSON(o)
	}
	w := tabwriter.NewWriter(r.a.out, 0, 4, 2, ' ', 0)
	for _, c := range columns {
		if t := c.text(o); t != "-" {
			fmt.Fprintf(w, "%s\t%s\n", c.title, t)
		}
	}
	return w.Flush()
}

// lister makes a command that lists.
func (r *remote) lister(short, path string, filters []string, columns ...column) *cobra.Command {
	limit := 100
	values := make([]string, len(filters))
	c := &cobra.Command{
		Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: does(func(ctx context.Context, _ []string) error {
			if limit < 1 {
				return refused(errors.New("--limit must be 1 or more"))
			}
			query := url.Values{}
			for i, f := range filters {
				if values[i] != "" {
					query.Set(f, values[i])
				}
			}
			items, err := r.list(ctx, path, query, limit)
			if err != nil {
				return err
			}
			return r.table(items, columns...)
		}),
	}
	c.Flags().IntVar(&limit, "limit", limit, "the most rows to show")
	for i, f := range filters {
		help := "only of this " + f
		if f == "from" || f == "to" {
			help = f + " this time, RFC 3339"
		}
		c.Flags().StringVar(&values[i], f, "", help)
	}
	return c
}

// getter makes a command that shows one object by its id.
func (r *remote) getter(name, short, path string, columns ...column) *cobra.Command {
	return &cobra.Command{
		Use: "get " + name, Short: short, Args: takes(name),
		RunE: does(func(ctx context.Context, args []string) error {
			o, err := r.ask(ctx, "GET", path+url.PathEscape(args[0]), nil, nil)
			if err != nil {
				return err
			}
			return r.sheet(o, columns...)
		}),
	}
}

// writeWhole leaves a whole file or none: what is read half stays under another name and is removed.
func writeWhole(file string, from io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := io.Copy(f, from); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", file, err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(f.Name(), file)
}
