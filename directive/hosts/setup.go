package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// defaultFile is the hosts file of the machine or of the pod.
const defaultFile = "/etc/hosts"

// Setup sets up the hosts directive of a server block: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	if err := config.Once(uses); err != nil {
		return err
	}

	d := uses[0]
	p := plan{timeout: mapTimeout, source: source{reverse: true}}
	h := new(Handler)
	errs := []error{p.read(b, d, h)}

	switch {
	case len(d.Args) > 0:
		if d.Args[0].Text == "" {
			errs = append(errs, d.Errorf(`want a file or a directory, got ""`))
		}
		p.paths = slices.Insert(p.paths, 0, path(b, d.Args[0]))
		d.Args = d.Args[1:]
	case len(p.paths) == 0 && len(p.settings) == 0:
		p.paths = []string{defaultFile}
	}

	p.paths = unrepeated(p.paths)
	errs = append(errs, p.checkPaths(d, b))
	zones, err := b.ZonesOr(d)
	errs = append(errs, err)
	for _, s := range p.settings {
		errs = append(errs, d.Each(s.Check()))
	}

	if err := errors.Join(errs...); err != nil {
		return err
	}

	if len(p.settings) > 0 { // all have the same files, which the server waits for
		if err := p.settings[0].CheckFiles(); err != nil {
			b.Warn(d.Each(err))
		}
	}

	p.zones, h.ttl = zones, uint32(p.ttl)
	for _, z := range zones {
		h.zones.Set(z, struct{}{})
	}
	h.inline = p.inline
	b.Handle(h)
	b.Answers(config.Extent{Use: uses[0], Zones: zones, Through: &h.fallthru, Option: "fallthrough", ReversePasses: true})

	b.OnStart(func(s *config.Start) (err error) {
		if h.table, err = p.start(s, d, b); err == nil && p.localise {
			h.networks, err = config.Keep(s, nil, func() (*networks, error) {
				return watchNetworks(config.Networks, b.Log), nil
			})
		}
		return err
	})
	return nil
}

// path returns the cleaned path of a file or a directory.
func path(b *config.Block, at corefile.Token) string { return filepath.Clean(b.Path(at.Text)) }

// unrepeated returns paths without repetitions.
func unrepeated(paths []string) (out []string) {
	for _, path := range paths {
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// checkPaths returns an error for each path that cannot be examined. A path that does
// not exist is a warning: as in CoreDNS, it may be created later.
func (p *plan) checkPaths(d corefile.Directive, b *config.Block) error {
	var errs []error
	for _, path := range p.paths {
		_, err := os.Stat(path)
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			if p.reported == nil {
				p.reported = map[string]string{}
			}
			b.Warn(d.Errorf("%w", err))
			p.reported[path] = warning(failedMessage, "file", path, "error", watch.Plain(err))
		default:
			errs = append(errs, d.Errorf("reading %s: %w", path, watch.Plain(err)))
		}
	}
	return errors.Join(errs...)
}

// A plan has the settings of a hosts directive, besides its Handler's settings.
type plan struct {
	source
	ttl      int
	localise bool
	timeout  time.Duration     // of a reload that waits for a ConfigMap
	settings []cluster.Options // of each ConfigMap
	keys     []string          // in each ConfigMap
}

// read reads the lines in the braces: lines that begin with an address are lines of a
// hosts file, the others are options.
func (p *plan) read(b *config.Block, d corefile.Directive, h *Handler) error {
	var errs []error
	var options []corefile.Directive
	var unsupported corefile.Directive
	for _, o := range d.Body {
		if strings.Contains(o.Text, ":") || o.Text != "" && strings.Contains("0123456789", o.Text[:1]) {
			errs = append(errs, p.addLine(d, o))
			continue
		}
		options = append(options, o)
		if o.Text == "fallthrough_unsupported" {
			unsupported = o
		}
	}

	d.Body = options
	var api cluster.Options
	errs = append(errs, d.Options(append([]corefile.Option{
		{Usage: "ttl SECONDS", Default: "3600", Set: corefile.Int(&p.ttl, 0, math.MaxInt32)},
		{Usage: "no_reverse", Set: func(corefile.Directive) error { p.reverse = false; return nil }},
		{Usage: "reload DURATION", Default: "5s", Set: corefile.Duration(&p.reload, 0, 365*24*time.Hour)},
		h.fallthru.Option(),
		{Usage: "fallthrough_unsupported", Set: corefile.Flag(&h.unsupported)},
		{Usage: "file PATH...", Set: func(o corefile.Directive) error { return p.addPaths(b, o) }},
		{Usage: "domain NAME", Set: func(o corefile.Directive) (err error) {
			if p.domain, err = wire.ParseName(o.Args[0].Text); err != nil || p.domain == wire.Root {
				return o.Errorf("want a name such as example.org, got %q", o.Args[0].Text)
			}
			return nil
		}},
		{Usage: "localise", Set: corefile.Flag(&p.localise)},
		{Usage: "configmap NAMESPACE/NAME KEY", Set: func(o corefile.Directive) error {
			p.settings = append(p.settings, cluster.Options{ConfigMap: o.Args[0].Text})
			p.keys = append(p.keys, o.Args[1].Text)
			return nil
		}},
		{Usage: "endpoint URL", Set: corefile.String(&api.Endpoint)},
	}, sources.LocationOptions(&api, b.Path)...)...))

	if h.unsupported && !h.fallthru.On {
		errs = append(errs, d.Errorf("fallthrough_unsupported on line %d needs fallthrough", unsupported.Line))
	}
	if len(p.settings) == 0 && api != (cluster.Options{}) {
		errs = append(errs, d.Errorf("endpoint, tls, kubeconfig and manifests need configmap"))
	}

	for i, s := range p.settings {
		api.ConfigMap = s.ConfigMap
		p.settings[i] = api
	}
	return errors.Join(errs...)
}

// addPaths adds the arguments of the option file.
func (p *plan) addPaths(b *config.Block, o corefile.Directive) error {
	var errs []error
	for _, a := range o.Args {
		if a.Text == "" {
			errs = append(errs, a.Errorf(o.Path, `want files and directories, got ""`))
		}
		p.paths = append(p.paths, path(b, a))
	}
	return errors.Join(errs...)
}

// addLine adds one line of a hosts file.
func (p *plan) addLine(d, o corefile.Directive) error {
	o.Path = d.Path
	if _, err := netip.ParseAddr(o.Text); err != nil {
		return o.Errorf("want an IP address and names, got %q", o.Text)
	}
	if len(o.Args) == 0 {
		return o.Errorf("want names after %s", o.Text)
	}

	words := []string{o.Text}
	var errs []error
	var room [wire.MaxName]byte
	for _, a := range o.Args {
		if _, wrong := hostsfile.AppendName(room[:0], a.Text); wrong != "" {
			errs = append(errs, a.Errorf(d.Path, "%q %s", a.Text, wrong))
		}
		words = append(words, a.Text)
	}
	p.inline = append(p.inline, text{name: o.File, lines: strings.Join(words, " "), line: o.Line - 1})
	return errors.Join(errs...)
}

// A tableKey identifies a table, which a reload keeps.
type tableKey struct {
	paths, inline, maps, zones string
	domain                     wire.Name
	reload                     time.Duration
	reverse                    bool
	plan                       *config.Start // set if a reload must not keep the table
}

// mapTimeout is how long a reload waits for a new ConfigMap.
const mapTimeout = 5 * time.Second

// start returns the table of the old plan if its settings are the same, or a new
// one. A reload waits for the new table's ConfigMaps, and fails without them; the
// first start does not wait.
func (p *plan) start(s *config.Start, d corefile.Directive, b *config.Block) (*table, error) {
	// A change of anything that the table depends on makes a new one.
	key := tableKey{
		paths: strings.Join(p.paths, "\n"), domain: p.domain, zones: fmt.Sprint(p.zones),
		reload: p.reload, reverse: p.reverse,
	}
	from := p.source

	for i, o := range p.settings {
		m, err := config.Keep(s, o, func() (*configMap, error) { return watchMap(o, b), nil })
		if err != nil {
			return nil, err
		}
		from.maps = append(from.maps, mapKey{m, o.ConfigMap, p.keys[i]})
		key.maps += fmt.Sprintf("%+v\n%s\n", o, p.keys[i])
	}

	var inline strings.Builder
	for _, line := range p.inline {
		inline.WriteString(line.lines + "\n")
	}
	key.inline = inline.String()
	if p.reload == 0 {
		key.plan = s // each plan reads the files, because the table does not follow them
	}

	return config.Keep(s, key, func() (*table, error) {
		from.polls, from.memory, from.health = b.NoFileEvents, b.Memory, b.Health()
		t := newTable(from, b.Log, b.Metrics)
		if t.refused != nil && s.Reload { // beside the lines of the old plan, which stays
			t.Stop()
			return nil, d.Errorf("%w", t.refused)
		}
		return t.start(), s.Await(t, t.synced, p.timeout, func() error {
			return d.Errorf("waiting for %s: no answer from the API server within %v", t.unlisted(), p.timeout)
		})
	})
}

// unlisted returns the names of the ConfigMaps that have not been listed.
func (t *table) unlisted() string {
	var names []string
	for _, m := range t.maps {
		if _, listed := m.lines(); !listed {
			names = append(names, m.String())
		}
	}
	return strings.Join(names, ", ")
}
