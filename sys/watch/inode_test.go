package watch

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// The files of a mounted ConfigMap are replaced repeatedly: a new file may have the
// inode number of an old one.
func TestFollowReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	w := openFiles(t)
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), dir}
	for i := range 1000 {
		folder := "..v" + strconv.Itoa(i)
		must(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
		write(t, filepath.Join(dir, folder, "a"), "1")
		write(t, filepath.Join(dir, folder, "b"), "1")
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		must(t, os.Symlink(folder, filepath.Join(dir, "..tmp")))
		must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		if old == "" {
			must(t, os.Symlink("..data/a", paths[0]))
			must(t, os.Symlink("..data/b", paths[1]))
		} else {
			must(t, os.RemoveAll(filepath.Join(dir, old)))
		}
		if random.IntN(3) == 0 {
			_ = w.follow(paths...) // the files may have been replaced again
			w.drain()
		}
	}
}
