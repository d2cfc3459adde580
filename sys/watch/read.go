package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Errors of Read.
var (
	ErrDirectory  = errors.New("a directory")
	ErrNotRegular = errors.New("want a file")
)

// Read returns the content of a regular file of at most limit bytes, a multiple of
// 1 MB. It never blocks on a FIFO, and checks the file after opening it: the file
// may have been replaced since its directory was read. Errors do not contain the
// path.
func Read(path string, limit int64) (string, error) {
	var b strings.Builder
	err := read(path, limit, &b)
	return b.String(), err
}

// ReadBytes is like Read.
func ReadBytes(path string, limit int64) ([]byte, error) {
	var b bytes.Buffer
	err := read(path, limit, &b)
	return b.Bytes(), err
}

type growingWriter interface {
	io.Writer
	Grow(n int)
}

func read(path string, limit int64, b growingWriter) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Plain(err)
	}
	defer file.Close()

	info, err := file.Stat()
	switch {
	case err != nil:
		return Plain(err)
	case info.IsDir():
		return ErrDirectory
	case !info.Mode().IsRegular():
		return ErrNotRegular
	case info.Size() > limit:
		return fmt.Errorf("larger than %d MB", limit>>20)
	}

	// A Buffer grows unless there is room for the end of the file.
	b.Grow(int(info.Size()) + bytes.MinRead)
	n, err := io.Copy(b, io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return Plain(err)
	case n > limit:
		return fmt.Errorf("larger than %d MB", limit>>20)
	}
	return nil
}

// Plain returns err without the path, for messages that name the file already.
func Plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
