package ledger

import (
	"context"
	"encoding/hex"
	"time"

	"counterfoil/sql"

	"github.com/jackc/pgx/v5"
)

// ToolDefinition is the definition of a tool as agents see it. Its hash is what receipts name.
type ToolDefinition struct {
	Tool      string
	SHA256    [32]byte // of Text
	Text      string   // canonical JSON
	FirstSeen time.Time
}

// ToolDefinition returns the definition of that hash, whatever the tool has become since. ErrNotFound: there is none.
func (l *Ledger) ToolDefinition(ctx context.Context, sha256 [32]byte) (*ToolDefinition, error) {
	rows, err := l.pool.Query(ctx, sql.Query("tool_definition"), sha256[:])
	if err != nil {
		return nil, coldError("read tool definition", err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanToolDefinition)
	if err != nil {
		return nil, coldError("read tool definition", err)
	}
	return &d, nil
}

// ToolsDescribed returns the definitions that these tools had last, whichever gateway saw them.
func (l *Ledger) ToolsDescribed(ctx context.Context, tools []string) ([]ToolDefinition, error) {
	rows, err := l.pool.Query(ctx, sql.Query("tools_described"), tools)
	if err != nil {
		return nil, coldError("read tools", err)
	}
	list, err := pgx.CollectRows(rows, scanToolDefinition)
	return list, coldError("read tools", err)
}

func scanToolDefinition(row pgx.CollectableRow) (ToolDefinition, error) {
	var d ToolDefinition
	var sum []byte
	if err := row.Scan(&d.Tool, &sum, &d.Text, &d.FirstSeen); err != nil {
		return d, err
	}
	copy(d.SHA256[:], sum) // 32 bytes, by a check of the table
	return d, nil
}

// KeepToolDefinitions stores definitions that a receipt may name and that no upstream has given.
func (l *Ledger) KeepToolDefinitions(ctx context.Context, list []ToolDefinition) error {
	names, sums, texts := columnsOf(list)
	_, err := l.pool.Exec(ctx, sql.Query("keep_tool_definitions"), sums, names, texts)
	return coldError("keep tool definitions", err)
}

// DefineTools stores what upstreams describe their tools as now. A tool that had another definition has changed,
// which is an audit event: one, however many gateways see it.
func (a *Admin) DefineTools(ctx context.Context, list []ToolDefinition) error {
	names, sums, texts := columnsOf(list)
	before, err := a.lockTools(ctx, names)
	if err != nil {
		return err
	}
	if _, err := a.tx.Exec(ctx, sql.Query("keep_tool_definitions"), sums, names, texts); err != nil {
		return coldError("keep tool definitions", err)
	}
	if _, err := a.tx.Exec(ctx, sql.Query("put_tools_described"), names, sums); err != nil {
		return coldError("describe tools", err)
	}
	for _, d := range list {
		after := hex.EncodeToString(d.SHA256[:])
		if old, known := before[d.Tool]; known && old != after {
			if err := a.event(ctx, "tool.definition_changed", d.Tool, map[string]any{"before": old, "after": after}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockTools returns the hashes that the tools have so far.
func (a *Admin) lockTools(ctx context.Context, names []string) (map[string]string, error) {
	rows, err := a.tx.Query(ctx, sql.Query("lock_tools_described"), names)
	if err != nil {
		return nil, coldError("lock tools", err)
	}
	sums := make(map[string]string, len(names))
	var name string
	var sum []byte
	_, err = pgx.ForEachRow(rows, []any{&name, &sum}, func() error {
		sums[name] = hex.EncodeToString(sum)
		return nil
	})
	return sums, coldError("lock tools", err)
}

func columnsOf(list []ToolDefinition) (names []string, sums [][]byte, texts []string) {
	for _, d := range list {
		names, sums, texts = append(names, d.Tool), append(sums, d.SHA256[:]), append(texts, d.Text)
	}
	return names, sums, texts
}
