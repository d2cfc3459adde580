package corefile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
)

// TextLimit is the maximum size of a file that Text reads, in bytes.
const TextLimit = 64 << 20

// Text reads a file that a Corefile names. The file must be regular: opening a
// pipe blocks until there is a writer, and a device may never end.
func Text(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	// Reading a directory returns a clear error.
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("read %s: not a regular file", path)
	}
	return TextFrom(path, file)
}

// TextFrom reads all of r, up to TextLimit. The error contains name. For a file whose size
// is known TextFrom allocates the buffer at once and reads with one call, because the file
// may be overwritten meanwhile.
func TextFrom(name string, r io.Reader) ([]byte, error) {
	var text bytes.Buffer

	if file, ok := r.(*os.File); ok {
		info, err := file.Stat()
		switch {
		case err != nil:
		case info.Size() > TextLimit && info.Mode().IsRegular():
			return nil, fmt.Errorf("read %s: larger than %d MB", name, TextLimit>>20)
		default:
			text.Grow(int(min(info.Size(), TextLimit)) + bytes.MinRead)
		}
	}

	n, err := text.ReadFrom(io.LimitReader(r, TextLimit+1))
	switch {
	case err != nil:
		return nil, err
	case n > TextLimit:
		return nil, fmt.Errorf("read %s: larger than %d MB", name, TextLimit>>20)
	}
	return text.Bytes(), nil
}
