package cmd

import (
	"bytes"
	"io"

	"github.com/seamark/seamark/sys/linewriter"
	"github.com/spf13/cobra"
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

// A frame is a state of --watch until it is complete.
type frame struct {
	bytes.Buffer
	console io.Writer // where it is shown
}

// console returns the file that the output is shown on.
func (p *program) console() io.Writer {
	if f, ok := p.out.(*frame); ok {
		return f.console
	}
	return p.log()
}

// outputFlag adds the flag --output of commands with JSON.
func outputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "format: text or json")
}

// newOutput returns a Writer of standard output or standard error for a server.
func newOutput(out io.Writer) *linewriter.Writer {
	return linewriter.New(out, nil, "[WARNING] Dropped lines: the output was not read in time count=%d")
}
