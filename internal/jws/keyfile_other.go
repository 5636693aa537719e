//go:build !unix

package jws

import (
	"errors"
	"os"
)

// Private keys need permission bits, no-follow opens and file locks. The verifier, which has none,
// runs everywhere.
var errPlatform = errors.New("key directories are supported on Unix only")

func openNoFollow(string) (*os.File, error) { return nil, errPlatform }

func lockDir(string) (unlock func(), err error) { return nil, errPlatform }

func syncDir(string) error { return errPlatform }
