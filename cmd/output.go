package cmd

import (
	"io"

	"github.com/seamark/seamark/sys/linewriter"
)

// A commandOutput is the standard output of a command. It keeps the first error, since a
// command whose output is lost, on a full disk for example, has failed.
type commandOutput struct {
	out io.Writer
	err error
}

func (o *commandOutput) Write(text []byte) (int, error) {
	n, err := o.out.Write(text)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// log returns the standard output of a server: a server whose log is lost has not failed.
func (p *program) log() io.Writer {
	if o, ok := p.out.(*commandOutput); ok {
		return o.out
	}
	return p.out
}

// newOutput returns a Writer of standard output or standard error for a server.
func newOutput(out io.Writer) *linewriter.Writer {
	return linewriter.New(out, nil, "[WARNING] Dropped lines: standard output was not read in time count=%d")
}
