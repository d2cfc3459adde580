package policy

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/wire"
)

// Setup sets up the directive policy.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	if err := errors.Join(config.Once(uses), d.Arity(0, 0)); err != nil {
		return err
	}

	p := &Policy{directive: d, metrics: b.Metrics, answered: new(group), newcomer: newNewcomers(),
		outcome: b.NewStateKey(), objects: new(atomic.Pointer[objectLines]),
		rooms: &sync.Pool{New: func() any { return new(targetRoom) }}}
	all, err := p.read(b, d)
	if err == nil && len(all) == 0 {
		err = d.Errorf("want group NAME in braces: without a group every name is allowed")
	}
	if err != nil {
		return err
	}
	p.groups = newGroups(all)
	b.Handle(p)
	p.startAudit(b, d)
	p.startNamespaces(b, d)
	p.startObjects(b)

	b.OnPlanned(func() error {
		p.clusters = config.Find[clusterNames](b)
		if len(p.clusters) == 0 {
			return d.Errorf("requires the directive kubernetes in the same server block, which knows the pods")
		}
		p.federate, p.probers = config.Find[federation](b), config.Find[probing](b)
		for _, c := range p.clusters {
			if err := c.NeedClientLabels(); err != nil {
				return d.Errorf("%w", err)
			}
			for _, zone := range c.AuthoritativeZones() {
				if !wire.WithinReverse(zone) {
					p.zones.Set(zone, true)
				}
			}
		}
		p.warn(b, d)
		return p.checkNames(d)
	})
	return nil
}

// read reads the options of d, and returns its groups.
func (p *Policy) read(b *config.Block, d corefile.Directive) (all []*group, err error) {
	var rcode string
	audit := false
	given := map[string]int{} // lines of the groups by name
	err = d.Options(
		corefile.Option{Usage: "group NAME", Block: true, Set: func(o corefile.Directive) error {
			name := o.Args[0].Text
			if line := given[name]; line > 0 {
				return o.Errorf("group %s is already given on line %d", name, line)
			}
			given[name] = o.Line
			g, err := readGroup(name, o)
			all = append(all, g)
			return err
		}},
		corefile.Option{Usage: "rcode nxdomain|refused", Default: "nxdomain", Set: corefile.OneOf(&rcode, "nxdomain", "refused")},
		corefile.Option{Usage: "audit", Set: corefile.Flag(&audit)},
		corefile.Option{Usage: "cluster_network_policies", Set: corefile.Flag(&p.readsPolicies)},
		corefile.Option{Usage: "objects", Block: true, Once: true, Set: func(o corefile.Directive) error { return p.readObjects(b, o) }},
	)
	p.rcode = map[string]wire.RCode{"nxdomain": wire.NXDomain, "refused": wire.Refused}[rcode]
	for _, g := range all {
		g.audit = g.audit || audit
	}
	return all, err
}

// readGroup reads the options of one group.
func readGroup(name string, d corefile.Directive) (*group, error) {
	g := &group{name: name}
	isPods := false
	err := d.Options(
		corefile.Option{Usage: "namespaces NAMESPACE...", Set: func(o corefile.Directive) error {
			isPods = true
			return addPatterns(&g.namespaces, o, o.Args)
		}},
		corefile.Option{Usage: "pods EXPRESSION...", Once: true, Set: func(o corefile.Directive) (err error) {
			isPods = true
			g.pods, err = cluster.ParseSelector(strings.Join(o.Words(), " "))
			return o.Each(err)
		}},
		corefile.Option{Usage: "namespace_labels EXPRESSION...", Once: true, Set: func(o corefile.Directive) error {
			isPods = true
			labels, err := cluster.ParseSelector(strings.Join(o.Words(), " "))
			if err != nil {
				return o.Errorf("%w", err)
			}
			g.labels, g.labelText = &labels, strings.Join(o.Words(), " ")
			return nil
		}},
		corefile.Option{Usage: "unknown", Set: corefile.Flag(&g.unknown)},
		corefile.Option{Usage: "allow NAME...", Set: func(o corefile.Directive) error { return g.addNames(o, allow) }},
		corefile.Option{Usage: "deny NAME...", Set: func(o corefile.Directive) error { return g.addNames(o, deny) }},
		corefile.Option{Usage: "services own|NAMESPACE...", Set: func(o corefile.Directive) error {
			g.limitsSight = true
			var others []corefile.Token
			for _, word := range o.Args {
				if word.Text == "own" {
					g.seesOwn = true
				} else {
					others = append(others, word)
				}
			}
			return addPatterns(&g.visible, o, others)
		}},
		corefile.Option{Usage: "audit", Set: corefile.Flag(&g.audit)},
	)

	// A group without a selector is the one of all pods.
	g.isPods = isPods || !g.unknown
	return g, err
}

// addPatterns adds the words of an option that selects namespaces.
func addPatterns(to *[]pattern, o corefile.Directive, words []corefile.Token) error {
	var errs []error
	for _, word := range words {
		inner := strings.TrimSuffix(word.Text, "*")
		// A letter stands for the rest of a name that a pattern leaves open.
		if test := inner + strings.Repeat("x", len(word.Text)-len(inner)); !cluster.IsNamespaceName(test) {
			errs = append(errs, word.Errorf(o.Path, "want the name of a namespace, or the beginning of names and *, got %q", word.Text))
		}
		*to = append(*to, pattern(word.Text))
	}
	return errors.Join(errs...)
}

// addNames adds the words of a line allow or deny: a name, *. and a name for those below it, or * for all.
func (g *group) addNames(o corefile.Directive, a action) error {
	var errs []error
	g.denies = g.denies || a == deny
	for _, word := range o.Args {
		name, below, err := audit.ParseWord(word.Text)
		if err != nil {
			errs = append(errs, word.Errorf(o.Path, "want a name, *.NAME for the names below it, or *, got %q", word.Text))
			continue
		}

		if g.names.set(name, below, int(a)) != int(a) {
			errs = append(errs, word.Errorf(o.Path, "%s is allowed and denied in the same group", word.Text))
		}
	}
	return errors.Join(errs...)
}

// checkNames returns an error for lines about names of the cluster, which only services decides.
func (p *Policy) checkNames(d corefile.Directive) error {
	var errs []error
	for _, g := range p.groups.all {
		for name := range g.names.values {
			if _, inside := p.namespaceOf([]byte(name)); inside {
				errs = append(errs, d.Errorf("group %s: %s is in a zone of the directive kubernetes: "+
					"services decides about its names, by their namespaces", g.name, name))
			}
		}
	}
	return corefile.Sorted(errs...)
}

// warn warns of what a group cannot have been meant to do.
func (p *Policy) warn(b *config.Block, d corefile.Directive) {
	limits := false
	for _, g := range p.groups.all {
		if g.audit {
			continue
		}
		limits = true
		if !g.limitsSight && len(g.names.values) == 0 && (p.settings == nil && !p.readsPolicies || !g.isPods) {
			b.Warn(d.Errorf("group %s denies nothing: it has no deny and no services", g.name))
		}
	}
	if limits && p.groups.unknown == nil {
		b.Warn(d.Errorf("no group is for unknown clients, so that they may resolve every name: " +
			"they are nodes, pods in a node's network, and each pod until its address is in its status"))
	}
}
