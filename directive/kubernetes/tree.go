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
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// WriteTree writes the document that kube-dns serves at /cache: the names of Services as
// a tree of labels from the root on, in indented JSON, sorted.
//
//	{"ChildNodes": {LABEL: ...}, "Entries": {LABEL: MESSAGE}}
//
// A message is SkyDNS's, without fields that are zero: host, port, priority, weight, ttl.
// Below a Service are its addresses, each at its hostname or at kube-dns's hash, and
// below _PROTO and _PORT, at the same labels, the SRV records. An ExternalName is an
// entry of its namespace. Of several addresses with one hostname only the first is at the
// hostname, the others are at their hashes.
//
// The tree is the state of one moment, as far as clients see it: exposed namespaces, and
// Services that have a name. Zones of ServiceImports and reverse zones are left out. An
// error is w's.
func (h *Handler) WriteTree(w io.Writer) error {
	root := new(zoneNode)
	for _, z := range h.zones {
		if !z.reverse && !z.multicluster {
			root.addZone(strings.TrimSuffix(z.name.String(), "."))
		}
	}
	t := tree{out: bufio.NewWriter(w), ttl: h.ttl, entries: visibleEntries(h.index)}
	err := t.writeNode(root)
	return cmp.Or(err, t.out.Flush())
}

// visibleEntries returns the visible entries by namespace and name. Changes wait while
// they are collected.
func visibleEntries(ix *index.Index) []*index.Entry {
	ix.Lock()
	all := make([]*index.Entry, 0, ix.Count(cluster.Services))
	for _, e := range ix.Entries(false) {
		if e.Visible() {
			all = append(all, e)
		}
	}
	ix.Unlock()
	slices.SortFunc(all, func(a, b *index.Entry) int {
		x, y := a.Key.ObjectKey(), b.Key.ObjectKey()
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// A zoneNode is a name at or above a zone.
type zoneNode struct {
	children map[string]*zoneNode
	isZone   bool
	services string // the zone without a final dot, at its node svc
	isSvc    bool   // the node svc of a zone
}

// addZone adds a zone.
func (n *zoneNode) addZone(zone string) {
	labels := strings.Split(zone, ".")
	slices.Reverse(labels)
	if zone == "" {
		labels = nil
	}
	for _, label := range labels {
		n = n.child(label)
	}
	n.isZone = true
	svc := n.child("svc")
	svc.services, svc.isSvc = zone, true
}

func (n *zoneNode) child(label string) *zoneNode {
	if n.children == nil {
		n.children = map[string]*zoneNode{}
	}
	if n.children[label] == nil {
		n.children[label] = new(zoneNode)
	}
	return n.children[label]
}

// A tree writes the document.
type tree struct {
	out       *bufio.Writer
	ttl       uint32
	entries   []*index.Entry
	depth     int  // of the current object
	hasMember bool // the current object has a member
}

// writeNode writes a node. A zone takes precedence over names of a zone above it.
func (t *tree) writeNode(n *zoneNode) (err error) {
	spaces := map[string][]*index.Entry{}
	if n.isSvc && !n.isZone {
		for rest := t.entries; len(rest) > 0; {
			ns := rest[0].Key.Namespace.Name
			end := slices.IndexFunc(rest, func(e *index.Entry) bool { return e.Key.Namespace.Name != ns })
			if end < 0 {
				end = len(rest)
			}
			spaces[ns], rest = rest[:end], rest[end:]
		}
	}

	for label := range n.children {
		spaces[label] = nil
	}

	t.openObject("")
	t.openObject("ChildNodes")
	for _, label := range slices.Sorted(maps.Keys(spaces)) {
		t.writeKey(label)
		if below := n.children[label]; below != nil {
			err = cmp.Or(err, t.writeNode(below))
		} else {
			err = cmp.Or(err, t.writeNamespace(n, spaces[label]))
		}
	}

	t.closeObject()
	t.openObject("Entries")
	t.closeObject()
	t.closeObject()
	return err
}

// writeNamespace writes the node of a namespace.
func (t *tree) writeNamespace(n *zoneNode, all []*index.Entry) error {
	t.openObject("")
	t.openObject("ChildNodes")
	for _, e := range all {
		if _, err := t.out.Write(nil); err != nil {
			return err // the writer has failed
		}
		if !e.ExternalName {
			t.writeKey(e.Key.ObjectKey().Name)
			t.writeService(n.services, e)
		}
	}
	t.closeObject()
	t.openObject("Entries")
	for _, e := range all {
		if e.ExternalName {
			target := wire.Name(e.Records[len(wire.OwnerIsQuestion)+10:])
			t.writeMessage(e.Key.ObjectKey().Name, strings.TrimSuffix(target.String(), "."), 0)
		}
	}
	t.closeObject()
	t.closeObject()
	return nil
}

// writeService writes the node of a Service.
func (t *tree) writeService(zone string, e *index.Entry) {
	key := e.Key.ObjectKey()
	name := key.Name + "." + key.Namespace + ".svc."
	if zone != "" {
		name += zone + "."
	}

	hosts, srv := serviceLeaves(e)
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
				if e.Headless {
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

// serviceLeaves returns a Service's addresses by label, and by _PROTO, _PORT and label the port
// numbers of its SRV records.
func serviceLeaves(e *index.Entry) (hosts map[string]netip.Addr, srv map[string]map[string]map[string]uint16) {
	hosts, srv = map[string]netip.Addr{}, map[string]map[string]map[string]uint16{}
	add := func(label string, ip netip.Addr, ports []cluster.Port) {
		if other, taken := hosts[label]; taken && other != ip || label == "" {
			label = string(index.AppendHashLabel(nil, ip))
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

	for ip := range e.ClusterIPs() {
		add("", ip, e.PortList())
	}

	if e.Headless {
		for ports, ep := range e.Served() {
			add(ep.Hostname, ep.Addr, ports.Ports)
		}
	}
	return hosts, srv
}

// writeMessage writes an entry.
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

// openObject begins an object, as a member if it has a name.
func (t *tree) openObject(name string) {
	if name != "" {
		t.writeKey(name)
	}
	t.out.WriteByte('{')
	t.depth++
	t.hasMember = false
}

// closeObject ends an object.
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

// writeKey begins a member.
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
