package directive

import (
	"errors"
	"io/fs"
	"os"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Root is the directory of relative file names.
type Root string

// Root returns the directory.
func (r Root) Root() string { return string(r) }

// SetupRoot sets up the root directive, which sets the directory of relative file names. Its
// reference page is docs/reference/directives/root.md.
func SetupRoot(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	if err := errors.Join(config.Once(uses), d.Arity(1, 1), d.Options()); err != nil {
		return err
	}
	path := d.Args[0].Text
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		b.Warn(d.Errorf("%w", err))
	case err != nil:
		return d.Errorf("%w", err)
	case !info.IsDir():
		return d.Errorf("%s is not a directory", path)
	}
	b.Offer(Root(path))
	return nil
}
