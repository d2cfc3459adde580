// Package dnsmasq translates dnsmasq's command line and configuration files to a
// Corefile. Parse reads the options (args.go, table.go and the files of each kind of
// option), Options.Corefile writes the text (corefile.go, forwards.go, static.go). The
// commands dnsmasq-nanny and convert call it. The package opens no sockets, starts no
// process, and reads only configuration files that the options name.
package dnsmasq

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// Options are the parsed options of a command line.
type Options struct {
	Version, Help, Test bool     // options that print a text and exit
	Debug               bool     // log debug messages
	PIDFile             string   // may be empty
	Port                int      // 1 to 65535
	Notes               []string // a sentence for each option that is ignored or works differently

	listen, interfaces, except []string // addresses; names of interfaces, perhaps with * at the end

	servers []*group // in the order of the options

	noResolv    bool
	resolvFiles []string
	strict      bool
	forwardMax  int // 0 is any number
	loop        bool

	noHosts  bool
	hosts    []string // files and directories
	expand   bool
	domain   string
	localTTL int
	localise bool

	hostRecords []hostRecord
	records     []record
	overrides   []override
	mxTarget    string

	cacheSize             int
	noNegative            bool
	maxTTL                int // 0 is none
	maxCache, minTTL      int
	stale                 int // seconds; -1 is never
	packet                int
	noRotation            bool
	noIdent               bool
	logQueries            bool
	plainLocal            bool // domain-needed
	privateReverse        bool // bogus-priv
	stopRebind, localhost bool
	debugging             bool // no-daemon: no file with the process id
	rebindOK              []string
	dropped               []string // A, AAAA
}

// defaultConfig is the configuration file that dnsmasq reads by default.
const defaultConfig = "/etc/dnsmasq.conf"

// Parse parses a command line without the program's name. It reports all mistakes,
// errors in a file with FILE:LINE.
func Parse(args []string) (Options, error) {
	return parse(args, disk{})
}

// files reads configuration files; tests replace it.
type files interface {
	// text returns the content of a file.
	text(path string) ([]byte, error)
	// list returns the sorted names in a directory.
	list(dir string) ([]string, error)
}

// disk reads the host's files.
type disk struct{}

func (disk) text(path string) ([]byte, error) { return corefile.Text(path) }

func (disk) list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// A reader holds the state of Parse.
type reader struct {
	Options
	files
	table   []option
	given   map[string]bool // options that may be given once; true if in a file
	configs []string        // files with options, read and unread

	readDefault bool
	errs        []error
}

// maxFiles limits configuration files that include each other.
const maxFiles = 1000

func parse(args []string, f files) (Options, error) {
	r := &reader{files: f, given: map[string]bool{}, readDefault: true, Options: Options{
		Port: 53, cacheSize: 150, stale: -1, packet: 1232,
	}}
	r.table = r.options()

	r.commandLine(args)
	if r.Version || r.Help {
		return r.Options, nil // dnsmasq ignores all other options, too
	}

	if r.readDefault {
		r.configs = slices.Insert(r.configs, 0, defaultConfig)
	}
	for i := 0; i < len(r.configs); i++ {
		if i == maxFiles {
			r.errs = append(r.errs, fmt.Errorf("%s: more than %d configuration files: some name themselves",
				r.configs[i], maxFiles))
			break
		}

		text, err := f.text(r.configs[i])
		switch {
		case err == nil:
			r.config(r.configs[i], text)
		case !r.readDefault || i > 0 || !errors.Is(err, os.ErrNotExist): // the default file may be missing
			r.errs = append(r.errs, err)
		}
	}
	r.check()
	return r.Options, errors.Join(r.errs...)
}

// check checks and completes options that depend on each other.
func (r *reader) check() {
	for i, m := range r.records {
		if m.kind == "MX" && m.data == "" {
			if r.mxTarget == "" {
				const message = "%smx-host: %s has no target: add one, or set --mx-target"
				r.errs = append(r.errs, fmt.Errorf(message, m.place, m.name))
			}
			r.records[i].data = fmt.Sprintf("1 %s.", r.mxTarget)
		}
		if m.kind == "SRV" && strings.Count(m.name, ".") == 1 && r.domain != "" {
			r.records[i].name += "." + r.domain
		}
	}
	for _, g := range r.servers {
		g.local = g.local && len(g.servers) == 0 && !g.useRoot // servers take precedence
		r.errs = append(r.errs, g.check()...)
	}
	r.errs = append(r.errs, r.loops()...)
	slices.Sort(r.Notes)
	r.Notes = slices.Compact(r.Notes)
	if r.debugging {
		r.PIDFile = ""
	}
}

// loops returns an error for each CNAME loop.
func (r *reader) loops() (errs []error) {
	targets := map[string]string{}
	var aliases []record
	for _, c := range r.records {
		if c.kind != "CNAME" {
			continue
		}
		if targets[c.name] != "" {
			errs = append(errs, fmt.Errorf("%scname: %s is given twice", c.place, c.name))
		}
		targets[c.name] = strings.TrimSuffix(c.data, ".")
		aliases = append(aliases, c)
	}
	for _, c := range aliases {
		at := targets[c.name]
		for n := 0; n < len(targets) && at != "" && at != c.name; n++ {
			at = targets[at]
		}
		if at == c.name {
			errs = append(errs, fmt.Errorf("%scname: %s leads to itself", c.place, c.name))
		}
	}
	return errs
}

// directory adds the files of DIR[,SUFFIX...]. If there are suffixes with *, files must
// have one of them. Files with a suffix without * are omitted.
func (r *reader) directory(s setting) error {
	parts := strings.Split(unescape(s.value), ",")
	dir := parts[0]
	names, err := r.list(dir)
	if err != nil {
		return err
	}

	var wanted, unwanted []string
	for _, p := range parts[1:] {
		if end, ok := strings.CutPrefix(p, "*"); ok {
			if end != "" {
				wanted = append(wanted, end)
			}
		} else if p != "" {
			unwanted = append(unwanted, p)
		}
	}

	for _, name := range names {
		ends := func(end string) bool { return strings.HasSuffix(name, end) && len(name) > len(end) }
		backup := strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
		switch {
		case strings.HasPrefix(name, "."), backup:
		case len(wanted) > 0 && !slices.ContainsFunc(wanted, ends), slices.ContainsFunc(unwanted, ends):
		default:
			r.configs = append(r.configs, filepath.Join(dir, name))
		}
	}
	return nil
}
