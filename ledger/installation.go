package ledger

import (
	"context"
	"fmt"

	"counterfoil/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Installation is the id of the database that this ledger is on: made once by the first program that opens it, kept
// for ever, and the same for all gateways that share it. It parts calls of harnesses that run elsewhere.
func (l *Ledger) Installation() string { return l.installation }

// install makes the id, or reads the one there is. It is an opaque text; a copy of a database has the same.
func (l *Ledger) install(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, sql.Query("installation"), "ins_"+uuid.NewString()); err != nil {
		return fmt.Errorf("make the installation's id: %w", err)
	}
	if err := conn.QueryRow(ctx, sql.Query("installation_id")).Scan(&l.installation); err != nil {
		return fmt.Errorf("read the installation's id: %w", err)
	}
	return nil
}
