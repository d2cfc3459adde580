package watch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file by one that write has written: as a whole, or not at all. The
// temporary file is in the same directory. Its name begins with two dots, so that
// programs that read all files of the directory ignore it; one that a crash has left is
// replaced.
func Replace(path string, perm fs.FileMode, write func(*os.File) error) error {
	temporary := filepath.Join(filepath.Dir(path), ".."+filepath.Base(path)+".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
