//go:build unix

package hosts

import (
	"io/fs"
	"syscall"
)

// inode tells a file from another that has taken its name; zero if that is not
// known.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
