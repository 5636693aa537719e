package testdb_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"counterfoil/internal/testdb"
	"counterfoil/sql"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestNew(t *testing.T) {
	for range 8 {
		t.Run("x", func(t *testing.T) {
			t.Parallel()
			t0 := time.Now()
			url := testdb.New(t)
			t.Log(time.Since(t0))
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if err := sql.CheckSchema(t.Context(), conn); err != nil {
				t.Error(err)
			}
			_ = conn
		})
	}
}
