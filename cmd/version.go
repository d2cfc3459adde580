package cmd

import (
	"fmt"
	"runtime"

	"github.com/seamark/seamark/metrics"
	"github.com/spf13/cobra"
)

// A Build describes the build of the program. Commit and Date are empty if the
// program was built without them, with go install for example.
type Build struct {
	Version string `json:"version"`          // semantic, without the v of its tag, or the output of git describe
	Commit  string `json:"commit,omitempty"` // whole hash
	Date    string `json:"date,omitempty"`   // of the commit, RFC 3339
}

// String returns the version in the format of CoreDNS, which scripts parse.
func (b Build) String() string {
	return fmt.Sprintf("Seamark-%s\n%s/%s, %s", b.Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// register adds CoreDNS's metric and Seamark's to r.
func (b Build) register(r *metrics.Registry) {
	one := func() float64 { return 1 }
	r.Gauge("coredns_build_info", "The version of the server and of the Go that built it; the value is always 1.",
		one, "goversion", runtime.Version(), "revision", b.Commit, "version", b.Version)
	r.Gauge("seamark_build_info", "The version, commit and platform of the server,"+
		" and the version of the Go that built it; the value is always 1.",
		one, "commit", b.Commit, "date", b.Date, "goversion", runtime.Version(),
		"platform", runtime.GOOS+"/"+runtime.GOARCH, "version", b.Version)
}

func (p *program) versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Show the version", Args: arguments(0, 0),
		Example: `  seamark version
  seamark version --output json`,
	}
	outputFlag(c, &output)

	c.RunE = func(*cobra.Command, []string) error {
		if err := oneOf("output", output, "text", "json"); err != nil {
			return err
		}
		if output == "text" {
			return p.showVersion()
		}
		return failed(indented(p.out, struct {
			Build
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{p.build, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}))
	}
	return c
}

func (p *program) showVersion() error {
	fmt.Fprintln(p.out, p.build)
	return nil
}
