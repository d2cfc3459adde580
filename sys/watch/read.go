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

// Errors of Read and Open.
var (
	ErrDirectory  = errors.New("a directory")
	ErrNotRegular = errors.New("not a regular file")
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

// Open opens a regular file. It never blocks on a FIFO.
func Open(path string) (*os.File, error) {
	file, _, err := open(path)
	return file, err
}

func open(path string) (file *os.File, info fs.FileInfo, err error) {
	if file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, nil, Plain(err)
	}

	switch info, err = file.Stat(); {
	case err != nil:
		err = Plain(err)
	case info.IsDir():
		err = ErrDirectory
	case !info.Mode().IsRegular():
		err = ErrNotRegular
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func read(path string, limit int64, b growingWriter) error {
	file, info, err := open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > limit {
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
