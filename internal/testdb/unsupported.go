//go:build !unix || aix || solaris

package testdb

import (
	"context"
	"errors"

	"counterfoil/internal/embeddedpg"
)

type throwaway struct{ server *embeddedpg.Server }

func startThrowaway(context.Context) (*throwaway, error) {
	return nil, errors.New("no throw-away server on this system: set TEST_DATABASE_URL")
}

func (*throwaway) close() error { return nil }

func fill(context.Context, string) error { return embeddedpg.ErrUnsupported }
