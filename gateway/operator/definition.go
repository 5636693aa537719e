package operator

import (
	"encoding/hex"
	"net/http"
	"regexp"

	"github.com/labstack/echo/v4"

	"counterfoil/ledger"
)

var hashPattern = regexp.MustCompile(`\A[0-9a-f]{64}\z`)

// getToolDefinition answers the definition that a receipt's tool_sha256 stands for: its canonical bytes and nothing
// else, so that whoever asks can check the hash.
func (a *api) getToolDefinition(c echo.Context) error {
	sum, err := hex.DecodeString(c.Param("hash"))
	if err != nil || len(sum) != 32 {
		return a.problem(c, ledger.ErrNotFound)
	}
	d, err := a.ledger.ToolDefinition(c.Request().Context(), [32]byte(sum))
	if err != nil {
		return a.problem(c, err)
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(d.Text))
}
