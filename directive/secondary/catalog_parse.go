package secondary

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// Labels of the names in a catalog (RFC 9432 §4).
const (
	versionLabel = "\x07version"
	zonesLabel   = "\x05zones"
	cooLabel     = "\x03coo"
)

// parseCatalog returns the members of a catalog zone. An error reports that the catalog is
// broken as a whole (RFC 9432 §5.1).
func parseCatalog(z *zone.Zone) (map[wire.Name]entry, error) {
	c, err := readCatalog(z)
	if err != nil {
		return nil, err
	}
	nodes := z.Origin().Join(zonesLabel)
	list := make(map[wire.Name]entry, len(c.members))
	for _, label := range slices.Sorted(maps.Keys(c.members)) {
		name := c.members[label][0]
		switch other, again := list[name]; {
		case len(c.members[label]) > 1:
			return nil, fmt.Errorf("several PTR records at %s", nodes.Join(label))
		case len(c.coos[label]) > 1:
			return nil, fmt.Errorf("several PTR records at %s", nodes.Join(cooLabel+label))
		case again:
			return nil, fmt.Errorf("zone %s at both %s and %s", name, nodes.Join(other.label), nodes.Join(label))
		}

		e := entry{label: label}
		if coo := c.coos[label]; coo != nil {
			e.coo = coo[0]
		}
		list[name] = e
	}
	return list, nil
}

// catalogRecords are the PTR records of a catalog zone by the label of the member node.
type catalogRecords struct {
	members map[string][]wire.Name
	coos    map[string][]wire.Name // catalogs that may take over the member
}

// readCatalog returns the records of a catalog zone of version 2.
func readCatalog(z *zone.Zone) (*catalogRecords, error) {
	version, nodes := z.Origin().Join(versionLabel), z.Origin().Join(zonesLabel)
	c := &catalogRecords{map[string][]wire.Name{}, map[string][]wire.Name{}}
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
		switch below := string(owner[:len(owner)-len(nodes)]); wire.Name(below).Labels() {
		case 1:
			c.members[below] = append(c.members[below], wire.Lower(data))
			if len(c.members) > maxMembers {
				return nil, fmt.Errorf("more than %d members", maxMembers)
			}
		case 2:
			if node, ok := strings.CutPrefix(below, cooLabel); ok {
				c.coos[node] = append(c.coos[node], wire.Lower(data))
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
	return c, nil
}
