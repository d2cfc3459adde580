package hosts

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// system is the file of the machine, or of the pod.
const system = "/etc/hosts"

// Setup is the Setup of hosts: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	if err := config.Once(uses); err != nil {
		return err
	}
	d := uses[0]
	p := plan{ttl: 3600, patience: patience, source: source{reload: 5 * time.Second, reverse: true}}
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
		p.paths = []string{system}
	}
	p.paths = different(p.paths)
	zones, err := b.ZonesOr(d)
	errs = append(errs, err)
	for _, s := range p.settings {
		errs = append(errs, each(d, s.Check()))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.zones, h.ttl = zones, uint32(p.ttl)
	for _, z := range zones {
		h.zones = append(h.zones, zone{z, z.Labels()})
	}
	slices.SortStableFunc(h.zones, func(a, b zone) int { return b.labels - a.labels })
	b.Handle(h)
	b.OnStart(func(s *config.Start) (err error) {
		if h.table, err = p.start(s, d, b); err == nil && p.localise {
			h.networks, err = config.Keep(s, networksKey{}, func() (*networks, error) {
				return watchNetworks(config.Networks, b.Log), nil
			})
		}
		return err
	})
	return nil
}

// path is where a file or a directory is, in one spelling.
func path(b *config.Block, at corefile.Token) string { return filepath.Clean(b.Path(at.Text)) }

// different leaves out what was there already.
func different(paths []string) (out []string) {
	for _, path := range paths {
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

// A plan is what a directive asks for, as far as it is not the handler's own.
type plan struct {
	source
	ttl      int
	localise bool
	patience time.Duration
	settings []cluster.Options // of each ConfigMap
	keys     []string
}

// read reads the lines in the braces: those that begin with an address are
// lines of hosts, the others are options.
func (p *plan) read(b *config.Block, d corefile.Directive, h *Handler) error {
	var errs []error
	var options []corefile.Directive
	for _, o := range d.Body {
		if strings.Contains(o.Text, ":") || o.Text != "" && strings.Contains("0123456789", o.Text[:1]) {
			errs = append(errs, p.line(d, o))
		} else {
			options = append(options, o)
		}
	}
	d.Body = options
	var api cluster.Options
	errs = append(errs, d.Options(
		corefile.Option{Name: "ttl", Min: 1, Max: 1, Set: corefile.Int(&p.ttl, 0, math.MaxInt32)},
		corefile.Option{Name: "no_reverse", Set: func(corefile.Directive) error { p.reverse = false; return nil }},
		corefile.Option{Name: "reload", Min: 1, Max: 1, Set: corefile.Duration(&p.reload, 0, 365*24*time.Hour)},
		h.through.Option(),
		corefile.Option{Name: "fallthrough_unsupported", Set: corefile.Flag(&h.unsupported)},
		corefile.Option{Name: "file", Min: 1, Max: -1, Set: func(o corefile.Directive) error {
			var errs []error
			for _, a := range o.Args {
				if a.Text == "" {
					errs = append(errs, a.Errorf(o.Path, `want files and directories, got ""`))
				}
				p.paths = append(p.paths, path(b, a))
			}
			return errors.Join(errs...)
		}},
		corefile.Option{Name: "domain", Min: 1, Max: 1, Set: func(o corefile.Directive) (err error) {
			if p.domain, err = wire.ParseName(o.Args[0].Text); err != nil || p.domain == wire.Root {
				return o.Errorf("want a name such as example.org, got %q", o.Args[0].Text)
			}
			return nil
		}},
		corefile.Option{Name: "localise", Set: corefile.Flag(&p.localise)},
		corefile.Option{Name: "configmap", Min: 2, Max: 2, Set: func(o corefile.Directive) error {
			p.settings = append(p.settings, cluster.Options{ConfigMap: o.Args[0].Text})
			p.keys = append(p.keys, o.Args[1].Text)
			return nil
		}},
		corefile.Option{Name: "endpoint", Min: 1, Max: 1, Set: corefile.String(&api.Endpoint)},
		corefile.Option{Name: "tls", Min: 3, Max: 3, Set: func(o corefile.Directive) error {
			api.Cert, api.Key, api.CA = b.Path(o.Args[0].Text), b.Path(o.Args[1].Text), b.Path(o.Args[2].Text)
			return nil
		}},
		corefile.Option{Name: "kubeconfig", Min: 1, Max: 2, Set: func(o corefile.Directive) error {
			words := append(o.Words(), "")
			api.Kubeconfig, api.KubeconfigContext = b.Path(words[0]), words[1]
			return nil
		}},
		corefile.Option{Name: "manifests", Min: 1, Max: 1, Set: func(o corefile.Directive) error {
			err := corefile.String(&api.Manifests)(o)
			api.Manifests = b.Path(api.Manifests)
			return err
		}},
	))
	if len(p.settings) == 0 && api != (cluster.Options{}) {
		errs = append(errs, d.Errorf("endpoint, tls, kubeconfig and manifests say where a configmap is, and none is given"))
	}
	for i, s := range p.settings {
		api.ConfigMap = s.ConfigMap
		p.settings[i] = api
	}
	return errors.Join(errs...)
}

// line takes in one line of hosts. Unlike one of a file it must be right.
func (p *plan) line(d, o corefile.Directive) error {
	o.Path = d.Path
	if _, err := netip.ParseAddr(o.Text); err != nil {
		return o.Errorf("want an IP address and names, got %q", o.Text)
	}
	if len(o.Args) == 0 {
		return o.Errorf("want names behind %s", o.Text)
	}
	line := text{name: o.File, lines: o.Text}
	var errs []error
	for _, a := range o.Args {
		if _, wrong := appendName(nil, a.Text); wrong != "" {
			errs = append(errs, a.Errorf(d.Path, "%q %s", a.Text, wrong))
		}
		line.lines += " " + a.Text
	}
	p.inline = append(p.inline, line)
	return errors.Join(errs...)
}

// each puts the directive's position before every error that is joined in err.
func each(d corefile.Directive, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		errs = append(errs, d.Errorf("%w", err))
	}
	return errors.Join(errs...)
}

// The keys under which things outlive a reload.
type (
	countKey    struct{}
	networksKey struct{}
	mapKey      struct{ cluster.Options }
	tableKey    struct {
		paths, inline, maps, zones string
		domain                     wire.Name
		reload                     time.Duration
		reverse                    bool
		plan                       *config.Start // if the table must not outlive it
	}
)

// patience is how long a reload waits for a ConfigMap that is new.
const patience = 5 * time.Second

// start makes the table, unless the old plan has it already. A reload waits for
// its ConfigMaps and fails without them; a first start serves at once.
func (p *plan) start(s *config.Start, d corefile.Directive, b *config.Block) (*table, error) {
	counts, err := config.Keep(s, countKey{}, func() (*count, error) { return newCount(b.Metrics), nil })
	if err != nil {
		return nil, err
	}
	key := tableKey{paths: strings.Join(p.paths, "\n"), domain: p.domain, zones: join(p.zones), reload: p.reload, reverse: p.reverse}
	from := p.source
	for i, o := range p.settings {
		m, err := config.Keep(s, mapKey{o}, func() (*configMap, error) { return watchMap(o, b.Log, b.Metrics), nil })
		if err != nil {
			return nil, err
		}
		from.maps = append(from.maps, mapped{m, o.ConfigMap, p.keys[i]})
		key.maps += fmt.Sprintf("%+v\n%s\n", o, p.keys[i])
	}
	for _, line := range p.inline {
		key.inline += line.lines + "\n"
	}
	if p.reload == 0 {
		key.plan = s // each plan reads the file anew, since nothing else does
	}
	made := false
	t, err := config.Keep(s, key, func() (*table, error) {
		made = true
		return newTable(from, b.Log, counts).start(), nil
	})
	if err != nil || !s.Reload || !made {
		return t, err
	}
	timeout := time.NewTimer(p.patience)
	defer timeout.Stop()
	select {
	case <-t.whole:
		return t, nil
	case <-timeout.C:
		return nil, d.Errorf("no answer of the API server about %s within %v", t.unseen(), p.patience)
	case <-s.Context.Done():
		return nil, s.Context.Err()
	}
}

// unseen names the ConfigMaps that have not been listed.
func (t *table) unseen() string {
	var names []string
	for _, m := range t.maps {
		if _, listed := m.lines(); !listed {
			names = append(names, m.String())
		}
	}
	return strings.Join(names, ", ")
}

func join(zones []wire.Name) string {
	var b strings.Builder
	for _, z := range zones {
		b.WriteString(string(z))
	}
	return b.String()
}
