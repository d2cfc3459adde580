package kubernetes

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// WriteTree writes what kube-dns shows at /cache: the names of Services as a tree
// of labels from the root on, in JSON of many lines, sorted.
//
//	{"ChildNodes": {LABEL: …}, "Entries": {LABEL: MESSAGE}}
//
// A message is SkyDNS's, without what is zero: host, port, priority, weight, ttl.
// Below a Service stand its addresses, each at the hash that kube-dns has for its
// label or at its hostname, and below _PROTO and _PORT, at the same labels, the
// SRV records. An ExternalName is an entry of its namespace. Of several addresses
// with one hostname only the first stands there, the others at their hashes.
//
// It is the state of one moment, and of that only what clients may see: no
// namespace that is not exposed, no Service without a name. Zones of
// ServiceImports and reverse zones are not in it. An error is w's.
func (h *Handler) WriteTree(w io.Writer) error {
	root := new(stem)
	for _, z := range h.zones {
		if !z.reverse && !z.multicluster {
			root.plant(strings.TrimSuffix(z.name.String(), "."))
		}
	}
	t := tree{out: bufio.NewWriter(w), ttl: h.ttl, entries: h.index.snapshot()}
	err := t.stem(root)
	return cmp.Or(err, t.out.Flush())
}

// snapshot gives what is visible, by namespace and name. Changes wait for it, but
// not for what is made of it.
func (ix *Index) snapshot() []*entry {
	ix.mu.Lock()
	all := make([]*entry, 0, ix.services.Len())
	for _, e := range ix.services.All() {
		if e.visible() {
			all = append(all, e)
		}
	}
	ix.mu.Unlock()
	slices.SortFunc(all, func(a, b *entry) int {
		x, y := a.home.name(), b.home.name()
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// A stem is a name that zones are below or at.
type stem struct {
	below map[string]*stem
	zone  bool
	of    string // the zone, without a dot at its end, whose Services are below svc
	svc   bool   // it is such a zone's svc
}

// plant adds a zone.
func (s *stem) plant(zone string) {
	labels := strings.Split(zone, ".")
	slices.Reverse(labels)
	if zone == "" {
		labels = nil
	}
	for _, label := range labels {
		s = s.at(label)
	}
	s.zone = true
	svc := s.at("svc")
	svc.of, svc.svc = zone, true
}

func (s *stem) at(label string) *stem {
	if s.below == nil {
		s.below = map[string]*stem{}
	}
	if s.below[label] == nil {
		s.below[label] = new(stem)
	}
	return s.below[label]
}

// A tree is on its way to a writer.
type tree struct {
	out     *bufio.Writer
	ttl     uint32
	entries []*entry
	depth   int  // of the object at hand
	filled  bool // it has a member
}

// stem writes a node. A zone takes what is at its name from the zones above.
func (t *tree) stem(s *stem) (err error) {
	spaces := map[string][]*entry{}
	if s.svc && !s.zone {
		for rest := t.entries; len(rest) > 0; {
			ns := rest[0].home.space.name
			n := slices.IndexFunc(rest, func(e *entry) bool { return e.home.space.name != ns })
			if n < 0 {
				n = len(rest)
			}
			spaces[ns], rest = rest[:n], rest[n:]
		}
	}
	for label := range s.below {
		spaces[label] = nil
	}
	t.open("")
	t.open("ChildNodes")
	for _, label := range slices.Sorted(maps.Keys(spaces)) {
		t.key(label)
		if below := s.below[label]; below != nil {
			err = cmp.Or(err, t.stem(below))
		} else {
			err = cmp.Or(err, t.space(s, spaces[label]))
		}
	}
	t.shut()
	t.open("Entries")
	t.shut()
	t.shut()
	return err
}

// space writes a namespace's node.
func (t *tree) space(s *stem, all []*entry) error {
	t.open("")
	t.open("ChildNodes")
	for _, e := range all {
		if _, err := t.out.Write(nil); err != nil {
			return err // nobody reads on
		}
		if !e.alias {
			t.key(e.home.name().Name)
			t.service(s.of, e)
		}
	}
	t.shut()
	t.open("Entries")
	for _, e := range all {
		if e.alias {
			target := wire.Name(e.records[len(wire.OwnerIsQuestion)+10:])
			t.message(e.home.name().Name, strings.TrimSuffix(target.String(), "."), 0)
		}
	}
	t.shut()
	t.shut()
	return nil
}

// service writes a Service's node.
func (t *tree) service(zone string, e *entry) {
	key := e.home.name()
	name := key.Name + "." + key.Namespace + ".svc."
	if zone != "" {
		name += zone + "."
	}
	hosts, srv := e.leaves()
	t.open("")
	t.open("ChildNodes")
	for _, proto := range slices.Sorted(maps.Keys(srv)) {
		t.open(proto)
		t.open("ChildNodes")
		for _, port := range slices.Sorted(maps.Keys(srv[proto])) {
			at := srv[proto][port]
			t.open(port)
			t.open("ChildNodes")
			t.shut()
			t.open("Entries")
			for _, label := range slices.Sorted(maps.Keys(at)) {
				target := name
				if e.headless {
					target = label + "." + name
				}
				t.message(label, target, at[label])
			}
			t.shut()
			t.shut()
		}
		t.shut()
		t.open("Entries")
		t.shut()
		t.shut()
	}
	t.shut()
	t.open("Entries")
	for _, label := range slices.Sorted(maps.Keys(hosts)) {
		t.message(label, hosts[label].String(), 0)
	}
	t.shut()
	t.shut()
}

// leaves gives a Service's addresses by label, and by _PROTO, _PORT and label the
// port numbers of its SRV records.
func (e *entry) leaves() (hosts map[string]netip.Addr, srv map[string]map[string]map[string]uint16) {
	hosts, srv = map[string]netip.Addr{}, map[string]map[string]map[string]uint16{}
	add := func(label string, ip netip.Addr, ports []cluster.Port) {
		if other, taken := hosts[label]; taken && other != ip || label == "" {
			label = string(appendHashLabel(nil, ip))
		}
		if other, taken := hosts[label]; taken && other != ip {
			return // two addresses with one hash: kube-dns has one of them, too
		}
		hosts[label] = ip
		for _, p := range ports {
			if p.Name == "" {
				continue
			}
			proto, port := "_"+p.Protocol, "_"+p.Name
			if srv[proto] == nil {
				srv[proto] = map[string]map[string]uint16{}
			}
			if srv[proto][port] == nil {
				srv[proto][port] = map[string]uint16{}
			}
			if _, taken := srv[proto][port][label]; !taken {
				srv[proto][port][label] = p.Port
			}
		}
	}
	for ip := range e.clusterIPs() {
		add("", ip, e.ports())
	}
	if e.headless {
		for w := e.walk(selection{}); w.next(); {
			add(w.ep.Hostname, w.ep.Addr, w.of.ports)
		}
	}
	return hosts, srv
}

// message writes an entry.
func (t *tree) message(label, host string, port uint16) {
	t.open(label)
	t.member("host", host)
	if port > 0 {
		t.member("port", port)
	}
	t.member("priority", 10)
	t.member("weight", 10)
	if t.ttl > 0 {
		t.member("ttl", t.ttl)
	}
	t.shut()
}

// open begins an object, as a member of that name if it has one.
func (t *tree) open(name string) {
	if name != "" {
		t.key(name)
	}
	t.out.WriteByte('{')
	t.depth++
	t.filled = false
}

// shut ends it.
func (t *tree) shut() {
	t.depth--
	if t.filled {
		t.line()
	}
	t.out.WriteByte('}')
	t.filled = true
}

func (t *tree) member(name string, value any) {
	t.key(name)
	text, _ := json.Marshal(value) // a string or a number
	t.out.Write(text)
}

// key begins a member.
func (t *tree) key(name string) {
	if t.filled {
		t.out.WriteByte(',')
	}
	t.line()
	text, _ := json.Marshal(name)
	t.out.Write(text)
	t.out.WriteString(": ")
	t.filled = true
}

func (t *tree) line() {
	t.out.WriteByte('\n')
	for range t.depth {
		t.out.WriteByte('\t')
	}
}
