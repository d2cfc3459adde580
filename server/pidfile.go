package server

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/seamark/seamark/sys/watch"
)

// A pidFile is the file with the ID of a process.
type pidFile struct {
	name string // "": there is no file
	pid  int
}

func (r *Run) pidFile() pidFile {
	if r.PID != 0 {
		return pidFile{r.PIDFile, r.PID}
	}
	return pidFile{r.PIDFile, os.Getpid()}
}

func (f pidFile) content() string { return strconv.Itoa(f.pid) + "\n" }

func (f pidFile) write() error {
	if f.name == "" {
		return nil
	}
	err := overwrite(f.name, f.content())
	if err == nil {
		return nil
	}
	if file, e := os.Lstat(f.name); e == nil && file.Mode().IsRegular() && file.Size() == 0 {
		_ = os.Remove(f.name) // a full disk may have left a partial file
	}
	return fmt.Errorf("writing the process ID: %w", err)
}

// overwrite sets the content of a file, which is never empty in between. It does not follow a link,
// with which another user could have another file overwritten, and does not wait for the reader of
// a FIFO.
func overwrite(name, content string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK|watch.NoFollow, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if info, e := file.Stat(); err == nil && e == nil && info.Mode().IsRegular() {
		err = file.Truncate(int64(len(content)))
	}
	return errors.Join(err, file.Close())
}

// remove removes the file unless a process that has replaced this one has written its ID,
// or it is a device, such as /dev/null.
func (f pidFile) remove() error {
	if f.name == "" {
		return nil
	}
	if file, err := os.Lstat(f.name); err == nil && !file.Mode().IsRegular() {
		return nil
	}
	if written, err := watch.Read(f.name, 1<<20); err == nil && written != f.content() {
		return nil
	}
	if err := os.Remove(f.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the pidfile: %w", err)
	}
	return nil
}
