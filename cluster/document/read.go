package document

import (
	"fmt"
	"io"
	"os"
)

// Read returns the content of a file, which may be a pipe, and its name for messages.
// If in is not nil, "-" is the name of in. limit is a multiple of 1 MB.
func Read(file string, in io.Reader, limit int64) (name string, text []byte, err error) {
	if file == "-" && in != nil {
		file = "(standard input)"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return file, nil, err
		}
		defer f.Close()
		in = f
	}
	text, err = io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("read %s: larger than %d MB", file, limit>>20)
	}
	return file, text, err
}
