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
	root := new(zoneNode)
	for _, z := range h.zones {
		if !z.reverse && !z.multicluster {
			root.addZone(strings.TrimSuffix(z.name.String(), "."))
		}
	}
	t := tree{out: bufio.NewWriter(w), ttl: h.ttl, entries: h.index.visibleEntries()}
	err := t.writeNode(root)
	return cmp.Or(err, t.out.Flush())
}

// snapshot gives what is visible, by namespace and name. Changes wait for it, but
// not for what is made of it.
func (ix *Index) visibleEntries() []*entry {
	ix.mu.Lock()
	all := make([]*entry, 0, ix.services.Len())
	for _, e := range ix.services.All() {
		if e.visible() {
			all = append(all, e)
		}
	}
	ix.mu.Unlock()
	slices.SortFunc(all, func(a, b *entry) int {
		x, y := a.key.objectKey(), b.key.objectKey()
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// A stem is a name that zones are below or at.
type zoneNode struct {
	children map[string]*zoneNode
	isZone   bool
	services string // the zone, without a dot at its end, whose Services are below svc
	isSvc    bool   // it is such a zone's svc
}

// plant adds a zone.
func (s *zoneNode) addZone(zone string) {
	labels := strings.Split(zone, ".")
	slices.Reverse(labels)
	if zone == "" {
		labels = nil
	}
	for _, label := range labels {
		s = s.child(label)
	}
	s.isZone = true
	svc := s.child("svc")
	svc.services, svc.isSvc = zone, true
}

func (s *zoneNode) child(label string) *zoneNode {
	if s.children == nil {
		s.children = map[string]*zoneNode{}
	}
	if s.children[label] == nil {
		s.children[label] = new(zoneNode)
	}
	return s.children[label]
}

// A tree is on its way to a writer.
type tree struct {
	out       *bufio.Writer
	ttl       uint32
	entries   []*entry
	depth     int  // of the object at hand
	hasMember bool // it has a member
}

// stem writes a node. A zone takes what is at its name from the zones above.
func (t *tree) writeNode(s *zoneNode) (err error) {
	spaces := map[string][]*entry{}
	if s.isSvc && !s.isZone {
		for rest := t.entries; len(rest) > 0; {
			ns := rest[0].key.namespace.name
			n := slices.IndexFunc(rest, func(e *entry) bool { return e.key.namespace.name != ns })
			if n < 0 {
				n = len(rest)
			}
			spaces[ns], rest = rest[:n], rest[n:]
		}
	}
	for label := range s.children {
		spaces[label] = nil
	}
	t.openObject("")
	t.openObject("ChildNodes")
	for _, label := range slices.Sorted(maps.Keys(spaces)) {
		t.writeKey(label)
		if below := s.children[label]; below != nil {
			err = cmp.Or(err, t.writeNode(below))
		} else {
			err = cmp.Or(err, t.writeNamespace(s, spaces[label]))
		}
	}
	t.closeObject()
	t.openObject("Entries")
	t.closeObject()
	t.closeObject()
	return err
}

// space writes a namespace's node.
func (t *tree) writeNamespace(s *zoneNode, all []*entry) error {
	t.openObject("")
	t.openObject("ChildNodes")
	for _, e := range all {
		if _, err := t.out.Write(nil); err != nil {
			return err // nobody reads on
		}
		if !e.externalName {
			t.writeKey(e.key.objectKey().Name)
			t.writeService(s.services, e)
		}
	}
	t.closeObject()
	t.openObject("Entries")
	for _, e := range all {
		if e.externalName {
			target := wire.Name(e.records[len(wire.OwnerIsQuestion)+10:])
			t.writeMessage(e.key.objectKey().Name, strings.TrimSuffix(target.String(), "."), 0)
		}
	}
	t.closeObject()
	t.closeObject()
	return nil
}

// service writes a Service's node.
func (t *tree) writeService(zone string, e *entry) {
	key := e.key.objectKey()
	name := key.Name + "." + key.Namespace + ".svc."
	if zone != "" {
		name += zone + "."
	}
	hosts, srv := e.leaves()
	t.openObject("")
	t.openObject("ChildNodes")
	for _, proto := range slices.Sorted(maps.Keys(srv)) {
		t.openObject(proto)
		t.openObject("ChildNodes")
		for _, port := range slices.Sorted(maps.Keys(srv[proto])) {
			at := srv[proto][port]
			t.openObject(port)
			t.openObject("ChildNodes")
			t.closeObject()
			t.openObject("Entries")
			for _, label := range slices.Sorted(maps.Keys(at)) {
				target := name
				if e.headless {
					target = label + "." + name
				}
				t.writeMessage(label, target, at[label])
			}
			t.closeObject()
			t.closeObject()
		}
		t.closeObject()
		t.openObject("Entries")
		t.closeObject()
		t.closeObject()
	}
	t.closeObject()
	t.openObject("Entries")
	for _, label := range slices.Sorted(maps.Keys(hosts)) {
		t.writeMessage(label, hosts[label].String(), 0)
	}
	t.closeObject()
	t.closeObject()
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
		add("", ip, e.portList())
	}
	if e.headless {
		for w := e.endpoints(selection{}); w.next(); {
			add(w.ep.Hostname, w.ep.Addr, w.ports.ports)
		}
	}
	return hosts, srv
}

// message writes an entry.
func (t *tree) writeMessage(label, host string, port uint16) {
	t.openObject(label)
	t.writeMember("host", host)
	if port > 0 {
		t.writeMember("port", port)
	}
	t.writeMember("priority", 10)
	t.writeMember("weight", 10)
	if t.ttl > 0 {
		t.writeMember("ttl", t.ttl)
	}
	t.closeObject()
}

// open begins an object, as a member of that name if it has one.
func (t *tree) openObject(name string) {
	if name != "" {
		t.writeKey(name)
	}
	t.out.WriteByte('{')
	t.depth++
	t.hasMember = false
}

// shut ends it.
func (t *tree) closeObject() {
	t.depth--
	if t.hasMember {
		t.newLine()
	}
	t.out.WriteByte('}')
	t.hasMember = true
}

func (t *tree) writeMember(name string, value any) {
	t.writeKey(name)
	text, _ := json.Marshal(value) // a string or a number
	t.out.Write(text)
}

// key begins a member.
func (t *tree) writeKey(name string) {
	if t.hasMember {
		t.out.WriteByte(',')
	}
	t.newLine()
	text, _ := json.Marshal(name)
	t.out.Write(text)
	t.out.WriteString(": ")
	t.hasMember = true
}

func (t *tree) newLine() {
	t.out.WriteByte('\n')
	for range t.depth {
		t.out.WriteByte('\t')
	}
}
