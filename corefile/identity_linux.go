package corefile

import (
	"io/fs"
	"syscall"
	"time"
)

// An identity is equal for a file that has not been written, replaced or linked meanwhile.
type identity struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec // the inode, which no program can set back
}

// identityOf returns the identity of a regular file at a time. It returns false if the file has changed so lately that
// another change may get the same time.
func identityOf(info fs.FileInfo, now time.Time) (identity, bool) {
	const settled = 2 * time.Second // the coarsest clock of a file system

	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return identity{}, false
	}
	i := identity{uint64(s.Dev), s.Ino, s.Size, s.Ctim}
	return i, now.Sub(time.Unix(s.Ctim.Unix())) > settled
}
