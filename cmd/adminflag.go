package cmd

import (
	"fmt"
	"path/filepath"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
	"github.com/spf13/cobra"
)

// An adminFlag is the address of the directive admin that all server blocks have by the flag --admin.
type adminFlag struct{ words []string }

func (f *adminFlag) flag(c *cobra.Command) {
	c.Flags().Func("admin", "serve the page and the API of the directive admin at `ADDRESS`, such as"+
		" localhost:8053 or unix:PATH, unless the Corefile has it", f.parse)
}

func (f *adminFlag) parse(text string) error {
	if f.words != nil {
		return fmt.Errorf("it is given twice")
	}
	path, unix := config.SocketPath(text)
	switch {
	case !unix:
		f.words = []string{text}
		return web.ParseAddress(text)
	case path == "":
		return fmt.Errorf("want HOST:PORT or unix:PATH, got %q", text)
	}

	path, err := filepath.Abs(path)
	f.words = []string{"unix", path}
	return err
}

// directive returns the directive that the flag stands for, nil without the flag.
func (f *adminFlag) directive() *corefile.Directive {
	if f.words == nil {
		return nil
	}
	d := &corefile.Directive{Token: corefile.Token{Text: "admin", File: "--admin"}}
	for _, w := range f.words {
		d.Args = append(d.Args, corefile.Token{Text: w, File: d.File})
	}
	return d
}
