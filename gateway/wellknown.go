package gateway

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"counterfoil/internal/canon"
	"counterfoil/permits"
	"counterfoil/receipts"
)

// ProtocolVersions are the MCP revisions that are served, newest first.
func ProtocolVersions() []string { return []string{"2026-07-28", "2025-11-25", "2025-06-18"} }

// jwks answers with every public key. A key is published long before its first
// use, so that a copy of some minutes' age is good enough.
func (g *Gateway) jwks(c echo.Context) error {
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=60")
	return c.JSONBlob(http.StatusOK, g.keyring.Public().JWKS())
}

// metadata says where things are, for a client that knows only the issuer.
func (g *Gateway) metadata(c echo.Context) error {
	b := append([]byte(nil), `{"issuer":`...)
	b = canon.AppendString(b, g.cfg.Issuer)
	b = append(b, `,"version":`...)
	b = canon.AppendString(b, g.cfg.Version)
	for _, m := range [][2]string{
		{"mcp_endpoint", g.cfg.Issuer + "/mcp/messages"},
		{"operator_endpoint", g.cfg.Issuer + "/v1"},
		{"jwks_uri", g.cfg.Issuer + "/.well-known/jwks.json"},
		{"receipt_type", receipts.Type},
		{"permit_type", permits.Type},
	} {
		b = canon.AppendString(append(b, ','), m[0])
		b = canon.AppendString(append(b, ':'), m[1])
	}
	b = appendStrings(append(b, `,"mcp_versions":`...), ProtocolVersions())
	b = appendStrings(append(b, `,"identity_platforms":`...), g.cfg.identityPlatforms())
	return c.JSONBlob(http.StatusOK, append(b, "}\n"...))
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = canon.AppendString(b, s)
	}
	return append(b, ']')
}
