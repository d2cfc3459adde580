package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/watch"
	"github.com/spf13/cobra"
)

func (p *program) formatCommand() *cobra.Command {
	var overwrite, difference bool
	c := &cobra.Command{
		Use:   "fmt [FILE]",
		Short: "Format a Corefile",
		Long: `Fmt prints a Corefile in the usual layout: four spaces for each brace around a line, one
space between words, at most one blank line. Comments and words stay as they are. Without
FILE it formats the file Corefile; "-" is standard input.

With --diff it prints the changes, and the exit status is 1 if there are any.`,
		Example: `  seamark fmt Corefile
  seamark fmt --overwrite Corefile
  seamark fmt --diff Corefile`,
		Args: arguments(0, 1),
	}
	c.Flags().BoolVarP(&overwrite, "overwrite", "w", false, "write the file")
	c.Flags().BoolVarP(&difference, "diff", "d", false, "print the changes as a unified diff")
	c.RunE = func(_ *cobra.Command, files []string) error {
		file := "Corefile"
		if len(files) > 0 {
			file = files[0]
		}
		switch {
		case overwrite && difference:
			return errors.New("set only one of --overwrite and --diff")
		case file == "-" && overwrite:
			return errors.New("--overwrite: want a file, got standard input")
		}
		return failed(p.format(file, overwrite, difference))
	}
	return c
}

func (p *program) format(file string, overwrite, difference bool) error {
	name := file
	var text []byte
	var err error
	if file == "-" {
		name = "stdin"
		text, err = corefile.TextFrom(name, p.in)
	} else {
		text, err = corefile.Text(file)
	}
	if err != nil {
		return err
	}

	laid, err := corefile.Layout(name, text)
	switch {
	case err != nil:
		return err
	case difference:
		if _, err := p.out.Write(diff.Diff(name, text, name+" (formatted)", laid)); err != nil {
			return err
		}
		if !bytes.Equal(text, laid) {
			return fmt.Errorf("%s: not formatted", name)
		}
		return nil
	case !overwrite:
		_, err := p.out.Write(laid)
		return err
	case bytes.Equal(text, laid):
		return nil
	}

	return replaceFile(file, laid)
}

// replaceFile replaces the contents of a file and keeps its permissions. After an error
// it has the old contents. A symbolic link stays one.
func replaceFile(file string, data []byte) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return watch.Replace(file, info.Mode().Perm(), func(f *os.File) error {
		_, err := f.Write(data)
		return cmp.Or(err, f.Chmod(info.Mode().Perm())) // whatever the umask is
	})
}
