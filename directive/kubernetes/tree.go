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
	all := slices.Collect(ix.VisibleEntries(index.ServiceView))
	ix.Unlock()
	slices.SortFunc(all, func(a, b *index.Entry) int { return a.Key.ObjectKey().Compare(b.Key.ObjectKey()) })
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
			t.writeMember(e.Key.ObjectKey().Name, t.newServiceNode(n.services, e))
		}
	}
	t.closeObject()
	t.openObject("Entries")
	for _, e := range all {
		if e.ExternalName {
			target := wire.Name(e.Records[len(wire.OwnerIsQuestion)+10:])
			t.writeMember(e.Key.ObjectKey().Name, t.newMessage(strings.TrimSuffix(target.String(), "."), 0))
		}
	}
	t.closeObject()
	t.closeObject()
	return nil
}

// A serviceNode is the node of a Service or below one.
type serviceNode struct {
	ChildNodes map[string]*serviceNode
	Entries    map[string]message
}

func newNode() *serviceNode {
	return &serviceNode{ChildNodes: map[string]*serviceNode{}, Entries: map[string]message{}}
}

func (n *serviceNode) child(label string) *serviceNode {
	if n.ChildNodes[label] == nil {
		n.ChildNodes[label] = newNode()
	}
	return n.ChildNodes[label]
}

// A message is an entry.
type message struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port,omitempty"`
	Priority int    `json:"priority"`
	Weight   int    `json:"weight"`
	TTL      uint32 `json:"ttl,omitempty"`
}

func (t *tree) newMessage(host string, port uint16) message {
	return message{Host: host, Port: port, Priority: 10, Weight: 10, TTL: t.ttl}
}

// newServiceNode returns the node of a Service, with the nodes _PROTO and _PORT below it.
func (t *tree) newServiceNode(zone string, e *index.Entry) *serviceNode {
	key := e.Key.ObjectKey()
	name := key.Name + "." + key.Namespace + ".svc."
	if zone != "" {
		name += zone + "."
	}

	n := newNode()
	add := func(label string, ip netip.Addr, ports []cluster.Port) {
		address := t.newMessage(ip.String(), 0)
		if other, taken := n.Entries[label]; taken && other != address || label == "" {
			label = string(index.AppendHashLabel(nil, ip))
		}
		if other, taken := n.Entries[label]; taken && other != address {
			return // two addresses with one hash: kube-dns has one of them, too
		}

		n.Entries[label] = address
		target := name
		if e.Headless {
			target = label + "." + name
		}
		for _, p := range ports {
			if p.Name == "" {
				continue
			}
			at := n.child("_" + p.Protocol).child("_" + p.Name).Entries
			if _, taken := at[label]; !taken {
				at[label] = t.newMessage(target, p.Port)
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
	return n
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
	text, _ := json.MarshalIndent(value, strings.Repeat("\t", t.depth), "\t") // strings and numbers
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
