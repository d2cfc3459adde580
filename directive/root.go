package directive

import (
	"errors"
	"io/fs"
	"os"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Root is the directory of relative paths.
type Root string

// Root returns the directory.
func (r Root) Root() string { return string(r) }

// SetupRoot is the root directive: where the files are that a server block
// names.
//
//	root PATH
//
// A relative path of a zone file, a hosts file, a certificate or any other file
// that a directive of the block names begins at the folder PATH. Without root,
// and for a relative PATH itself, that is the folder in which the server was
// started. A folder that does not exist is said in the log: it may come later.
//
// Both zones are read from files in the folder zones:
//
//	.:1053 {
//	    root zones
//	    file db.example.org example.org
//	    file db.example.net example.net
//	}
//
// Same as CoreDNS. Differs: a PATH that is no folder is an error.
func SetupRoot(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	if err := errors.Join(config.Once(uses), d.Arity(1, 1), d.Options()); err != nil {
		return err
	}
	path := d.Args[0].Text
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		b.Log.Warn("root: there is no such folder", "path", path)
	case err != nil:
		return d.Errorf("%w", err)
	case !info.IsDir():
		return d.Errorf("%s is not a folder", path)
	}
	b.Offer(Root(path))
	return nil
}
