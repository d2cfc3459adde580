package secondary

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// maxMembers bounds the members of one catalog: each costs at least a goroutine and a zone.
const maxMembers = 10_000

// An entry is one member of a catalog.
type entry struct {
	label string    // of its member node: another label resets the zone
	coo   wire.Name // the catalog that may take over the zone, or ""
}

// parseCatalog returns the members of a catalog zone. An error reports that the catalog is
// broken as a whole (RFC 9432 §5.1).
func parseCatalog(z *zone.Zone) (map[wire.Name]entry, error) {
	version := z.Origin().Join("\x07version")
	nodes, cooNodes := z.Origin().Join("\x05zones"), "\x03coo"
	members, owners := map[string][]wire.Name{}, map[string][]wire.Name{}
	versions, supported := 0, false
	for r := range z.Records {
		at, _ := wire.ReadRecord(r, 0)
		if at.Type != wire.TypePTR && at.Type != wire.TypeTXT {
			continue
		}
		owner, data := wire.Lower(string(r[:at.Head])), string(r[at.RData:at.Next])
		if at.Type == wire.TypeTXT {
			if owner == version {
				versions++
				supported = data == "\x012"
			}
			continue
		}
		if !owner.Within(nodes) {
			continue
		}
		switch below := string(owner[:len(owner)-len(nodes)]); labels(below) {
		case 1:
			members[below] = append(members[below], wire.Lower(data))
			if len(members) > maxMembers {
				return nil, fmt.Errorf("more than %d members", maxMembers)
			}
		case 2:
			if node := below[len(cooNodes):]; below[:len(cooNodes)] == cooNodes {
				owners[node] = append(owners[node], wire.Lower(data))
			}
		}
	}
	switch {
	case versions == 0:
		return nil, errors.New("no version")
	case versions > 1:
		return nil, errors.New("several versions")
	case !supported:
		return nil, errors.New("unsupported version, want 2")
	}
	list := make(map[wire.Name]entry, len(members))
	for _, label := range slices.Sorted(maps.Keys(members)) {
		name := members[label][0]
		switch other, again := list[name]; {
		case len(members[label]) > 1:
			return nil, fmt.Errorf("several PTR records at %s", nodes.Join(label))
		case len(owners[label]) > 1:
			return nil, fmt.Errorf("several PTR records at %s", nodes.Join(cooNodes+label))
		case again:
			return nil, fmt.Errorf("zone %s at both %s and %s", name, nodes.Join(other.label), nodes.Join(label))
		}
		e := entry{label: label}
		if coo := owners[label]; coo != nil {
			e.coo = coo[0]
		}
		list[name] = e
	}
	return list, nil
}

// labels returns the number of labels in a part of a name.
func labels(part string) (n int) {
	for ; part != ""; part = part[1+part[0]:] {
		n++
	}
	return n
}
