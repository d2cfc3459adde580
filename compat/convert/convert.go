// Package convert turns what people run kube-dns with into a Corefile: it finds the
// ConfigMap and the containers' command lines in manifests, and makes one server of
// those that a pod has. What the command lines mean is for who calls it, package cmd,
// which knows their flags. It asks no cluster and starts nothing.
package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/internal/kubednsconfig"
)

// A Part is what one program's command line means.
type Part struct {
	Program
	Text  string   // a Corefile; "" of one that answers nothing
	Notes []string // what of the command line is done in another way, or not
	Runs  []string // flags that say how the program runs and logs
}

// A Conversion is all there is to make one Corefile of.
type Conversion struct {
	From   string // for the comment: "Deployment kube-system/kube-dns", "a command line"
	Parts  []Part
	Config *ConfigMap // to be written out; nil is to follow the one that is named
	Order  []string   // the names of directives, as they are to stand
	Notes  []string   // of what there is besides
}

// Corefile gives the text, which begins with comments: what comes from where, and
// what is not carried over.
func (c Conversion) Corefile() (string, error) {
	m := merging{Conversion: c, notes: slices.Clone(c.Notes)}
	servers, err := m.servers()
	if err != nil {
		return "", err
	}
	for i := range servers {
		slices.SortStableFunc(servers[i].Directives, func(a, b corefile.Directive) int {
			return slices.Index(c.Order, a.Text) - slices.Index(c.Order, b.Text)
		})
	}
	text, err := corefile.Format(servers)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# Made by seamark convert of %s.\n", m.sources())
	var runs []string
	for _, p := range c.Parts {
		for _, n := range append(slices.Clone(p.Program.Notes), p.Notes...) {
			m.note("%s: %s", p.Called(), n)
		}
		for _, r := range p.Runs {
			if !slices.Contains(runs, r) {
				runs = append(runs, r)
			}
		}
	}
	if len(runs) > 0 {
		m.note("how a program runs and logs is no part of a Corefile: %s", strings.Join(runs, ", "))
	}
	for _, n := range m.notes {
		out.WriteString("# - " + oneLine(n) + "\n")
	}
	return out.String() + text, nil
}

// oneLine keeps a text within its comment.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}

type merging struct {
	Conversion
	notes []string
}

func (m *merging) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// sources is what the Corefile is made of.
func (m *merging) sources() string {
	var programs []string
	for _, p := range m.Parts {
		programs = append(programs, p.Called())
	}
	text := m.From + ": " + strings.Join(programs, ", ")
	if m.Config != nil {
		text += "; and of " + m.Config.Place
	}
	return text
}

// find gives the part of a program, nil if there is none.
func (m *merging) find(names ...string) (*Part, error) {
	var found *Part
	for i, p := range m.Parts {
		if !slices.Contains(names, p.Name) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s and %s are two of a kind: give one of them", found.Called(), p.Called())
		}
		found = &m.Parts[i]
	}
	return found, nil
}

// servers makes server blocks of the parts.
func (m *merging) servers() ([]corefile.Server, error) {
	kube, err := m.find(KubeDNS)
	masq, err2 := m.find(Nanny, Dnsmasq)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if kube == nil && masq == nil {
		return nil, errors.New("nothing that answers questions: no kube-dns, dnsmasq-nanny or dnsmasq")
	}
	blocks := map[*Part][]corefile.Server{}
	var errs []error
	for _, p := range []*Part{kube, masq} {
		if p != nil {
			blocks[p], err = corefile.Parse(p.Called(), []byte(p.Text))
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config, err := m.config()
	if err != nil {
		return nil, err
	}
	servers := blocks[masq]
	if masq == nil {
		servers = blocks[kube]
	} else if kube != nil {
		if servers, err = m.join(servers, blocks[kube][0], config); err != nil {
			return nil, err
		}
	}
	if m.Config == nil {
		m.followed(servers)
	} else if servers, err = m.writeOut(servers, config, kube != nil && first(blocks[kube][0], "kubedns_config") >= 0); err != nil {
		return nil, err
	}
	gone := ""
	if masq != nil {
		m.letStubs(&servers[len(servers)-1])
	}
	if masq != nil && kube != nil {
		gone = kubedns.ListenAddress(blocks[kube][0])
	}
	m.probes(servers, gone)
	return servers, nil
}

// config reads the ConfigMap, if there is one. What is wrong with it is told whole.
func (m *merging) config() (kubednsconfig.Config, error) {
	if m.Config == nil {
		return kubednsconfig.Config{}, nil
	}
	c, err := kubednsconfig.Parse(m.Config.Data)
	if err != nil {
		var lines []string
		for line := range strings.Lines(err.Error()) {
			lines = append(lines, m.Config.Place+": "+strings.TrimSuffix(line, "\n"))
		}
		return c, errors.New(strings.Join(lines, "\n"))
	}
	for _, key := range kubednsconfig.UnknownKeys(m.Config.Data) {
		m.note("%s: the key %q means nothing to kube-dns", m.Config.Place, key)
	}
	return c, nil
}

// writeOut puts what the ConfigMap says in the place of kubedns_config. Federations
// are for kube-dns alone.
func (m *merging) writeOut(servers []corefile.Server, c kubednsconfig.Config, federations bool) ([]corefile.Server, error) {
	reads := slices.ContainsFunc(servers, func(s corefile.Server) bool { return first(s, "kubedns_config") >= 0 })
	switch {
	case !reads && !federations:
		m.note("%s: none of these command lines reads it: it is left out", m.Config.Place)
		return servers, nil
	case len(c.Federations) > 0 && !federations:
		m.note("%s: federations are left out: kube-dns reads them, and no command line of one that does was given", m.Config.Place)
		c.Federations = nil
	}
	m.note("%s is written out: a change of it needs another conversion; with --follow the Corefile follows it", m.Config.Place)
	out, err := kubedns.Expand(servers, c)
	for i := range out {
		out[i].Directives = slices.DeleteFunc(out[i].Directives, shadowed(map[string]bool{}))
	}
	return out, err
}

// shadowed finds forwards that nothing comes to: one before has the same zone.
func shadowed(seen map[string]bool) func(corefile.Directive) bool {
	return func(d corefile.Directive) bool {
		if d.Text != "forward" {
			return false
		}
		again := seen[zone(d.Args[0])]
		seen[zone(d.Args[0])] = true
		return again
	}
}

// followed says what kubedns_config needs.
func (m *merging) followed(servers []corefile.Server) {
	for _, s := range servers {
		at := first(s, "kubedns_config")
		if at < 0 {
			continue
		}
		what := s.Directives[at].Args[0].Text
		if directory(what) {
			m.note("kubedns_config follows the ConfigMap that is mounted in %s: the server needs that mount, too", what)
		} else {
			m.note("kubedns_config follows the ConfigMap %s: the account needs get, list and watch on it", what)
		}
	}
}

// probes says what becomes of the sidecar. gone is the address at which kube-dns
// answered if nobody does there any more.
func (m *merging) probes(servers []corefile.Server, gone string) {
	for _, p := range m.Parts {
		if p.Name != Sidecar {
			continue
		}
		where := "kubedns_status"
		for _, s := range servers {
			if at := first(s, "kubedns_status"); at >= 0 {
				where = "http://ADDRESS" + s.Directives[at].Args[0].Text + "/readiness"
			}
		}
		m.note("%s is no part of a Corefile: run seamark sidecar with its flags beside the server, or have probes look at %s", p.Called(), where)
		if gone != "" && slices.ContainsFunc(p.Args, func(a string) bool { return strings.Contains(a, ","+gone+",") }) {
			m.note("%s probes %s: it has to probe %s", p.Called(), gone, kubedns.ListenAddress(servers[len(servers)-1]))
		}
	}
}

// first gives the place of a directive, -1 if there is none.
func first(s corefile.Server, name string) int {
	return slices.IndexFunc(s.Directives, func(d corefile.Directive) bool { return d.Text == name })
}
