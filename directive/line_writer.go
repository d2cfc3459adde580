package directive

import (
	"io"
	"os"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/linewriter"
)

// standardOutput returns the process's Writer of the lines of errors and log. All server blocks
// share it, and it survives reloads.
func standardOutput(s *config.Start, b *config.Block) (*linewriter.Writer, error) {
	return config.Keep(s, nil, func() (*linewriter.Writer, error) {
		return newLineWriter(os.Stdout, b.Metrics), nil
	})
}

func newLineWriter(out io.Writer, r *metrics.Registry) *linewriter.Writer {
	dropped := r.Counter("seamark_log_dropped_lines_total",
		"Lines of the query and error logs that were dropped because standard output was blocked.")
	// A text of several lines, such as a panic with its stack, counts as one.
	return linewriter.New(out, func(int) { dropped.Add(1) }, "")
}
