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
	Version, Help, Test bool     // print something and exit
	Debug               bool     // log debug messages
	PIDFile             string   // may be empty
	Port                int      // 1 to 65535
	Notes               []string // a sentence for each option that is ignored or works differently

	listen, interfaces, except []string // addresses; names of interfaces, perhaps with * at the end

	servers []*group // in the order given

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
	addresses   []address
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

// usual is the configuration file that dnsmasq reads by default.
const usual = "/etc/dnsmasq.conf"

// Parse parses a command line without the program's name. It reports all mistakes,
// those in a file with FILE:LINE.
func Parse(args []string) (Options, error) {
	return parse(args, disk{})
}

// files gives access to configuration files; tests replace it.
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
	configs []string        // files with options, those that have been read among them
	usual   bool            // the usual file is read
	errs    []error
}

// maxFiles limits configuration files that include each other.
const maxFiles = 1000

func parse(args []string, f files) (Options, error) {
	r := &reader{files: f, table: table(), given: map[string]bool{}, usual: true, Options: Options{
		Port: 53, cacheSize: 150, stale: -1, packet: 1232,
	}}
	r.commandLine(args)
	if r.Version || r.Help {
		return r.Options, nil // dnsmasq ignores all other options, too
	}
	if r.usual {
		r.configs = slices.Insert(r.configs, 0, usual)
	}
	for i := 0; i < len(r.configs); i++ {
		if i == maxFiles {
			r.errs = append(r.errs, fmt.Errorf("%s: more than %d configuration files: some name themselves", r.configs[i], maxFiles))
			break
		}
		text, err := f.text(r.configs[i])
		switch {
		case err == nil:
			r.config(r.configs[i], text)
		case !r.usual || i > 0 || !errors.Is(err, os.ErrNotExist): // the default file may be missing
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
				r.errs = append(r.errs, fmt.Errorf("%smx-host: %s has no target: give one, or --mx-target", m.place, m.name))
			}
			r.records[i].data = fmt.Sprintf("1 %s.", r.mxTarget)
		}
		if one := strings.Count(m.name, "."); m.kind == "SRV" && one == 1 && r.domain != "" {
			r.records[i].name += "." + r.domain
		}
	}
	for _, g := range r.servers {
		g.local = g.local && len(g.servers) == 0 && !g.usual // servers take precedence
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
	to := map[string]string{}
	for _, c := range r.records {
		if c.kind != "CNAME" {
			continue
		}
		if _, twice := to[c.name]; twice {
			errs = append(errs, fmt.Errorf("%scname: %s is given twice", c.place, c.name))
		}
		to[c.name] = strings.TrimSuffix(c.data, ".")
	}
	for _, c := range r.records {
		if c.kind != "CNAME" {
			continue
		}
		at := c.name
		for range to {
			next, ok := to[at]
			if !ok {
				break
			}
			if at = next; at == c.name {
				errs = append(errs, fmt.Errorf("%scname: %s leads to itself", c.place, c.name))
				break
			}
		}
	}
	return errs
}

// directory adds the files of DIR[,SUFFIX…]: those with a suffix that is given with *,
// if there is any, and without the other suffixes.
func (r *reader) directory(value string) error {
	parts := strings.Split(value, ",")
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
		switch {
		case strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#"):
		case len(wanted) > 0 && !slices.ContainsFunc(wanted, ends), slices.ContainsFunc(unwanted, ends):
		default:
			r.configs = append(r.configs, filepath.Join(dir, name))
		}
	}
	return nil
}
