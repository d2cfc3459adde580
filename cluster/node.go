package cluster

import (
	"encoding/json"
	"strings"
)

// A Node has the topology labels of a Node.
type Node struct {
	Name string
	// Zone and Region come from topology.kubernetes.io/{zone,region} or, if these
	// are not both there, from failure-domain.beta.kubernetes.io/{zone,region}; lower
	// case. Both are empty if neither pair is whole.
	Zone, Region string
}

// Key implements Object.
func (n *Node) Key() Key { return Key{Name: n.Name} }

// nodes returns the resource. It requests only metadata: the status of a node is long
// and changes often.
func (o Options) nodes() resource {
	r := resourceOf(coreVersion(), Nodes, "Node", readNode, o.node)
	r.metadata = true
	return r
}

func (o Options) node(n *apiNode) *Node {
	slim := &Node{Name: n.Name}
	for _, prefix := range [...]string{"topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/"} {
		if zone, region := n.Labels[prefix+"zone"], n.Labels[prefix+"region"]; zone != "" && region != "" {
			slim.Zone, slim.Region = intern(strings.ToLower(zone)), intern(strings.ToLower(region))
			break
		}
	}
	return slim
}

// readNode decodes a Node, or its PartialObjectMetadata, in protobuf.
func readNode(raw []byte, a *arrived) (n apiNode, err error) {
	n.Labels = map[string]string{}
	m := message{rest: raw}
	for m.next() {
		if m.number == 1 {
			m.fail(a.readMeta(m.bytes(), func(key, value []byte) { n.Labels[string(key)] = string(value) }))
		}
	}
	n.Name = a.name
	return n, m.err
}

// node decodes a manifest.
func (d *decoder) node(raw json.RawMessage, it *item) error {
	var n apiNode
	if err := d.read(raw, it, &n); err != nil {
		return err
	}
	it.key.Namespace = ""
	it.object = d.opts.node(&n)
	return nil
}
