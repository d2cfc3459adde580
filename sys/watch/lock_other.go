//go:build !linux

package watch

import (
	"errors"
	"os"
)

const nonBlocking = 0

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
