// Package dnsmasq reads dnsmasq's command line and its configuration files, and says
// the same in the words of a Corefile: options in, text or errors out. The command
// dnsmasq-nanny calls it. It opens no sockets and starts nothing; the files that it
// reads are those that the options name as configuration.
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

// Options are what a command line asks for, understood. They come from Parse.
type Options struct {
	Version, Help, Test bool     // show something, and end
	Debug               bool     // the log tells everything
	PIDFile             string   // where to write the process id; "" is nowhere
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

// usual is the file that is read if no other is named.
const usual = "/etc/dnsmasq.conf"

// Parse reads a command line without the program's name. All that is wrong is
// reported, one error for each mistake; what stands in a file, with FILE:LINE.
func Parse(args []string) (Options, error) {
	return parse(args, disk{})
}

// files are what configuration is read from.
type files interface {
	// text gives the content of a file.
	text(path string) ([]byte, error)
	// list gives the names of what is in a directory, in their order.
	list(dir string) ([]string, error)
}

// disk is the files of the machine.
type disk struct{}

func (disk) text(path string) ([]byte, error) { return corefile.Text(path) }

func (disk) list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// A reader is what Parse is at.
type reader struct {
	Options
	files
	table   []option
	given   map[string]bool // options that may be given once; true if in a file
	configs []string        // files with options, those that have been read among them
	usual   bool            // the usual file is read
	errs    []error
}

// maxFiles bounds configurations that name each other.
const maxFiles = 1000

func parse(args []string, f files) (Options, error) {
	r := &reader{files: f, table: table(), given: map[string]bool{}, usual: true, Options: Options{
		Port: 53, cacheSize: 150, stale: -1, packet: 1232,
	}}
	r.commandLine(args)
	if r.Version || r.Help {
		return r.Options, nil // nothing else counts then
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
		case !r.usual || i > 0 || !errors.Is(err, os.ErrNotExist): // nobody has asked for the usual one
			r.errs = append(r.errs, err)
		}
	}
	r.check()
	return r.Options, errors.Join(r.errs...)
}

// check looks at what options mean together.
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
		g.local = g.local && len(g.servers) == 0 && !g.usual // those who can be asked are
		r.errs = append(r.errs, g.check()...)
	}
	r.errs = append(r.errs, r.loops()...)
	slices.Sort(r.Notes)
	r.Notes = slices.Compact(r.Notes)
	if r.debugging {
		r.PIDFile = ""
	}
}

// loops finds aliases that lead to themselves.
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

// directory adds the files of DIR[,ENDING…]: those with one of the endings that begin
// with *, if there are any, and with none of the others.
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
