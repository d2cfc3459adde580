package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// A Sign signs zone files: the sign directive. Its reference page is
// docs/reference/directives/sign.md.
type Sign struct{ tasks []*signTask }

// A signTask is one zone of a sign directive.
type signTask struct {
	use     corefile.Directive
	path    string // of the zone file without signatures
	origin  wire.Name
	origins []wire.Name // of the directive
	keys    []*signing.Key
	signed  string // path of the signed zone file
	signer  *signer
}

// SetupSign sets up the sign directives of a server block: see Sign. It reads keys and zone
// files, so that their errors are errors of the plan.
func SetupSign(b *config.Block, uses []corefile.Directive) error {
	all := &Sign{}
	first := map[string]corefile.Directive{}
	var errs []error
	for _, d := range uses {
		tasks, err := parseSign(b, d)
		errs = append(errs, err)
		for _, t := range tasks {
			if other, ok := first[t.signed]; ok {
				errs = append(errs, d.Errorf("zone %s is already signed at %s:%d", t.origin, other.File, other.Line))
				continue
			}
			first[t.signed] = d
			all.tasks = append(all.tasks, t)
			b.OnStart(func(s *config.Start) error { return t.start(s, b) })
			b.OnSwap(func() { t.signer.follow(t) })
		}
	}
	b.Offer(all)
	return errors.Join(errs...)
}

// signs reports whether a sign directive of the block writes the file at path.
func signs(b *config.Block, path string) bool {
	path = absolute(path)
	for _, s := range config.Find[*Sign](b) {
		if slices.ContainsFunc(s.tasks, func(t *signTask) bool { return t.signed == path }) {
			return true
		}
	}
	return false
}

func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

// parseSign reads one sign directive, its keys and its zone file.
func parseSign(b *config.Block, d corefile.Directive) ([]*signTask, error) {
	if err := d.Arity(1, -1); err != nil {
		return nil, err
	}
	path, dir := b.Path(d.Args[0].Text), ""
	named := d
	named.Args = d.Args[1:]
	zones, err := b.ZonesOr(named)
	if err != nil { // the messages about keys name a zone
		return nil, err
	}

	var keys []*signing.Key
	err = d.Options(
		corefile.Option{Usage: "key file|directory KEY...", Set: func(o corefile.Directive) error {
			return readKeys(&keys, b, o, zones)
		}},
		corefile.Option{Usage: "directory DIR", Default: "/var/lib/coredns", Set: func(o corefile.Directive) error {
			dir = b.Path(o.Args[0].Text)
			return nil
		}},
	)
	if err != nil {
		return nil, err
	}

	var tasks []*signTask
	var errs []error
	for _, origin := range zones {
		l := loader{origin: origin, origins: zones, sign: true}
		if _, _, err := l.load(path); err != nil {
			errs = append(errs, d.Errorf("%w", err))
			break
		}

		t := &signTask{use: d, path: path, origin: origin, origins: zones}
		t.keys = slices.DeleteFunc(slices.Clone(keys), func(k *signing.Key) bool { return k.Owner != origin })
		if len(t.keys) == 0 {
			t.keys = keys
		}
		if len(t.keys) == 0 {
			errs = append(errs, d.Errorf("no key for %s: make one with dnssec-keygen -a ECDSAP256SHA256 -f KSK %[1]s, "+
				"and add a line: key file FILE", origin))
		}

		t.signed = absolute(filepath.Join(dir, strings.ReplaceAll(fmt.Sprintf("db.%ssigned", origin), "/", "%2F")))
		tasks = append(tasks, t)
	}
	return tasks, errors.Join(errs...)
}

// readKeys appends the key pairs of a line.
func readKeys(keys *[]*signing.Key, b *config.Block, o corefile.Directive, zones []wire.Name) (err error) {
	source := o.Args[0].Text
	if source != "file" && source != "directory" {
		return o.Errorf("want file or directory, got %q", source)
	}

	var errs []error
	for _, a := range o.Args[1:] {
		files := []string{b.Path(a.Text)}
		if source == "directory" {
			if files, err = keyFiles(files[0], zones); err != nil {
				errs = append(errs, a.Errorf(o.Path, "%w", err))
			}
		}

		for _, file := range files {
			k, err := signing.ReadKey(file)
			switch {
			case err != nil:
				errs = append(errs, a.Errorf(o.Path, "%w", err))
				continue
			case !slices.Contains(zones, k.Owner):
				errs = append(errs, a.Errorf(o.Path, "%s is a key of %s, which is not one of the zones: "+
					"make one for %s, or add the zone after DBFILE", k.File, k.Owner, zones[0]))
			case !k.SEP:
				errs = append(errs, a.Errorf(o.Path, "%s is not a key-signing key: make one with dnssec-keygen -f KSK",
					k.File))
			case k.Weak != "":
				b.Warn(a.Errorf(o.Path, "%s has the algorithm %s, which resolvers may not accept: "+
					"make a key with dnssec-keygen -a ECDSAP256SHA256", k.File, k.Weak))
			}

			b.WarnExposed(o, k.File+".private")
			*keys = signing.AppendKey(*keys, k)
		}
	}
	return errors.Join(errs...)
}

// keyFiles returns the paths of the zones' key pairs in a directory.
func keyFiles(dir string, zones []wire.Name) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	for _, e := range entries {
		text, isPair := strings.CutPrefix(e.Name(), "K")
		text, _, _ = strings.Cut(text, "+")
		origin, err := wire.ParseName(text)
		if isPair && err == nil && slices.Contains(zones, origin) && strings.HasSuffix(e.Name(), ".key") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}

	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no files K%s+*.key", dir, zones[0])
	}
	return paths, nil
}

// start takes the signer of the signed file, and signs the zone unless the file can be
// served.
func (t *signTask) start(s *config.Start, b *config.Block) (err error) {
	t.signer, err = config.Keep(s, t.signed, func() (*signer, error) { return newSigner(t, b), nil })
	if err == nil {
		err = t.signer.prepare(s, t)
	}
	return t.use.Each(err)
}

// equal reports whether t and other sign the same zone file with the same keys.
func (t *signTask) equal(other *signTask) bool {
	return t.path == other.path &&
		slices.EqualFunc(t.keys, other.keys, func(a, b *signing.Key) bool { return a.RData == b.RData })
}
