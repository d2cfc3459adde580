package policy

import "github.com/seamark/seamark/wire"

// Names have values for names themselves, and for all names below them: the lines of a group, or the rules of
// a ClusterNetworkPolicy. No value is 0.
type names struct {
	values map[wire.Name]nameValues
	own    bool   // some are for names themselves
	depths depths // the labels of the names below which there are some
}

type nameValues struct{ own, below int }

// set sets the value of a name, or of the names below it, unless there is one, and returns it.
func (n *names) set(name wire.Name, below bool, value int) int {
	if n.values == nil {
		n.values = map[wire.Name]nameValues{}
	}
	v := n.values[name]
	of := &v.own
	if below {
		of = &v.below
		n.depths.add(name.Labels())
	} else {
		n.own = true
	}
	if *of == 0 {
		*of = value
		n.values[name] = v
	}
	return *of
}

// walk calls f with the values for a name, in wire form and in lower case, those of the longest name first,
// until it returns false. line is the name that has the value; its length is 1 for that of all names.
func (n *names) walk(name []byte, f func(value int, line []byte) bool) {
	if len(name) == 0 { // of a message without a question
		return
	}
	if n.own {
		if v := n.values[wire.Name(name)].own; v != 0 && !f(v, name) {
			return
		}
	}
	if n.depths == 0 {
		return
	}

	labels := wire.Labels(name)
	rest := name
	for {
		if rest[0] != 0 { // else the name is the root, which * has
			rest, labels = rest[1+rest[0]:], labels-1
		}
		if n.depths.has(labels) {
			if v := n.values[wire.Name(rest)].below; v != 0 && !f(v, rest) {
				return
			}
		}
		if rest[0] == 0 {
			return
		}
	}
}

// Depths are numbers of labels, as bits; the last one is for all that are larger.
type depths uint32

const mostDepth = 31

func (d *depths) add(labels int)     { *d |= 1 << min(labels, mostDepth) }
func (d *depths) remove(labels int)  { *d &^= 1 << min(labels, mostDepth) }
func (d depths) has(labels int) bool { return d&(1<<min(labels, mostDepth)) != 0 }
