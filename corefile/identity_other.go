//go:build !linux

package corefile

import (
	"io/fs"
	"time"
)

// An identity tells nothing: files are read.
type identity struct{}

func identityOf(fs.FileInfo, time.Time) (identity, bool) { return identity{}, false }
