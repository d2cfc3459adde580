// Package convert converts the configuration of a kube-dns pod to a Corefile. It
// finds the ConfigMap and the containers' command lines in manifests (objects.go,
// programs.go), translates each command line to a Corefile (input.go), and merges
// these into one server (convert.go, merge.go). Package cmd calls Input.Corefile for
// the command convert. The package does not contact a cluster and starts no process.
package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/sys/order"
)

// A Part is one program with the Corefile for its command line.
type Part struct {
	Program
	Text         string   // the Corefile; "" if the program answers no queries
	Notes        []string // arguments that are ignored or work differently
	ProcessFlags []string // flags that affect the process and its log only
}

// A Conversion merges the programs of one pod into one Corefile.
type Conversion struct {
	From   string // for the comment: "Deployment kube-system/kube-dns", "a command line"
	Parts  []Part
	Config *ConfigMap // to write into the Corefile; nil: follow the ConfigMap
	Order  []string   // the names of directives in their order
	Notes  []string   // about the rest of the input
}

// A Result is the Corefile of a conversion.
type Result struct {
	Corefile string   `json:"corefile"` // begins with comments: its sources and the notes
	Sources  string   `json:"sources"`  // the input, for people
	Notes    []string `json:"notes"`    // what the Corefile does not cover
}

// Corefile merges the parts.
func (c Conversion) Corefile() (r Result, err error) {
	m := merger{Conversion: c, notes: slices.Clone(c.Notes)}
	servers, err := m.servers()
	if err != nil {
		return r, err
	}

	for i := range servers {
		order.SliceStable(servers[i].Directives, func(a, b corefile.Directive) int {
			return slices.Index(c.Order, a.Text) - slices.Index(c.Order, b.Text)
		})
	}

	text, err := corefile.Format(servers)
	if err != nil {
		return r, err
	}

	var processFlags []string
	for _, p := range c.Parts {
		for _, n := range append(slices.Clone(p.Program.Notes), p.Notes...) {
			m.note("%s: %s", p.Label(), n)
		}
		for _, f := range p.ProcessFlags {
			if !slices.Contains(processFlags, f) {
				processFlags = append(processFlags, f)
			}
		}
	}
	if len(processFlags) > 0 {
		m.note("not part of a Corefile, since they affect the process or its log: %s", strings.Join(processFlags, ", "))
	}

	r = Result{Sources: m.sources(), Notes: []string{}}
	var out strings.Builder
	fmt.Fprintf(&out, "# Converted by seamark convert from %s.\n", r.Sources)
	for _, n := range m.notes {
		r.Notes = append(r.Notes, oneLine(n))
		out.WriteString("# - " + oneLine(n) + "\n")
	}
	r.Corefile = out.String() + text
	return r, nil
}

// oneLine replaces control characters, which could end a comment.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
}

// A merger merges the parts of a Conversion and collects notes.
type merger struct {
	Conversion
	notes []string
}

func (m *merger) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// sources describes the input in the first comment.
func (m *merger) sources() string {
	var programs []string
	for _, p := range m.Parts {
		programs = append(programs, p.Label())
	}
	text := m.From + ": " + strings.Join(programs, ", ")
	if m.Config != nil {
		text += "; and " + m.Config.Place
	}
	return text
}

// find returns the part of a program; nil if there is none.
func (m *merger) find(names ...string) (*Part, error) {
	var found *Part
	for i, p := range m.Parts {
		if !slices.Contains(names, p.Name) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("the input has both %s and %s: remove one of them", found.Label(), p.Label())
		}
		found = &m.Parts[i]
	}
	return found, nil
}

// servers merges the parts into server blocks.
func (m *merger) servers() ([]corefile.Server, error) {
	kube, err := m.find(servers.KubeDNS)
	masq, err2 := m.find(servers.Nanny, servers.Dnsmasq)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if kube == nil && masq == nil {
		return nil, errors.New("no program that answers queries in the input: want kube-dns, dnsmasq-nanny or dnsmasq")
	}

	blocks := map[*Part][]corefile.Server{}
	var errs []error
	for _, p := range []*Part{kube, masq} {
		if p != nil {
			blocks[p], err = corefile.Parse(p.Label(), []byte(p.Text))
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

	federations := kube != nil && first(blocks[kube][0], "kubedns_config") >= 0
	if m.Config == nil {
		m.noteFollowed(servers)
	} else if servers, err = m.writeOut(servers, config, federations); err != nil {
		return nil, err
	}

	removed := ""
	if masq != nil {
		m.passStubDomains(&servers[len(servers)-1])
	}
	if masq != nil && kube != nil {
		removed = kubedns.ListenAddress(blocks[kube][0])
	}
	m.noteSidecar(servers, removed)
	return servers, nil
}

// config parses the ConfigMap in the input; without one it returns the default.
func (m *merger) config() (kubednsconfig.Config, error) {
	if m.Config == nil {
		return kubednsconfig.Config{}, nil
	}
	c, err := kubednsconfig.Parse(m.Config.Data)
	if err != nil {
		return c, prefixLines(m.Config.Place+": ", err)
	}
	for _, key := range kubednsconfig.UnknownKeys(m.Config.Data) {
		m.note("%s: kube-dns ignores the key %q", m.Config.Place, key)
	}
	return c, nil
}

// writeOut replaces kubedns_config with the directives for the ConfigMap. Only
// kube-dns reads federations.
func (m *merger) writeOut(
	servers []corefile.Server, c kubednsconfig.Config, federations bool,
) ([]corefile.Server, error) {
	reader := slices.ContainsFunc(servers, func(s corefile.Server) bool { return first(s, "kubedns_config") >= 0 })
	switch {
	case !reader && !federations:
		m.note("%s: omitted, since none of these command lines reads it", m.Config.Place)
		return servers, nil
	case len(c.Federations) > 0 && !federations:
		m.note("%s: federations are omitted: only kube-dns reads them, and the input has no command line of it",
			m.Config.Place)
		c.Federations = nil
	}

	m.note("%s: the Corefile contains its settings; repeat the conversion after a change, or use --follow",
		m.Config.Place)
	out, err := kubedns.Expand(servers, c)
	for i := range out {
		out[i].Directives = slices.DeleteFunc(out[i].Directives, shadowed(map[string]bool{}))
	}
	return out, err
}

// shadowed reports forwards that receive no queries, since an earlier one has the
// same zone.
func shadowed(seen map[string]bool) func(corefile.Directive) bool {
	return func(d corefile.Directive) bool {
		if d.Text != "forward" {
			return false
		}
		duplicate := seen[zone(d.Args[0])]
		seen[zone(d.Args[0])] = true
		return duplicate
	}
}

// noteFollowed adds a note about the requirements of kubedns_config.
func (m *merger) noteFollowed(servers []corefile.Server) {
	for _, s := range servers {
		at := first(s, "kubedns_config")
		if at < 0 {
			continue
		}
		source := s.Directives[at].Args[0].Text
		if isDirectory(source) {
			m.note("kubedns_config follows the ConfigMap mounted at %s: add this mount to the server's pod", source)
		} else {
			m.note("kubedns_config follows the ConfigMap %s: grant the service account get, list and watch on it",
				source)
		}
	}
}

// noteSidecar adds a note about the sidecar. removed is the address of kube-dns if no
// server listens there after the conversion.
func (m *merger) noteSidecar(servers []corefile.Server, removed string) {
	for _, p := range m.Parts {
		if p.answers() {
			continue
		}
		page := "kubedns_status"
		for _, s := range servers {
			if at := first(s, "kubedns_status"); at >= 0 {
				page = "http://ADDRESS" + s.Directives[at].Args[0].Text + "/readiness"
			}
		}
		m.note("%s is not part of a Corefile: run seamark sidecar with its flags beside the server, "+
			"or point probes to %s", p.Label(), page)
		probed := func(arg string) bool { return strings.Contains(arg, ","+removed+",") }
		if removed != "" && slices.ContainsFunc(p.Args, probed) {
			m.note("%s probes %s: let it probe %s", p.Label(), removed, kubedns.ListenAddress(servers[len(servers)-1]))
		}
	}
}

// first returns the index of the first directive of that name, -1 if there is none.
func first(s corefile.Server, name string) int {
	return corefile.IndexOf(s.Directives, name)
}
