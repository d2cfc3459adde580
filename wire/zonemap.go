package wire

import "slices"

// maxScanned is the number of zones up to which comparing a name with each of them is faster
// than looking up its suffixes in a map.
const maxScanned = 8

// A ZoneMap has a value for each of its zones, and finds the longest zone that contains a name.
// The zero value is empty. A ZoneMap is safe for concurrent use while no zone is added.
type ZoneMap[V any] struct {
	values    map[Name]V
	zones     []Name         // in the order in which they were added
	maxLabels int            // of the zones
	few       []zoneValue[V] // the same zones, most labels first; nil if they are more than maxScanned
}

type zoneValue[V any] struct {
	zone   Name
	labels int
	value  V
}

// Set adds a zone, or replaces its value.
func (m *ZoneMap[V]) Set(zone Name, v V) {
	if m.values == nil {
		m.values = map[Name]V{}
	}
	if _, exists := m.values[zone]; !exists {
		m.zones = append(m.zones, zone)
	}
	m.values[zone] = v
	labels := zone.Labels()
	m.maxLabels = max(m.maxLabels, labels)

	if len(m.values) > maxScanned {
		m.few = nil
		return
	}
	m.few = slices.DeleteFunc(m.few, func(z zoneValue[V]) bool { return z.zone == zone })
	at := slices.IndexFunc(m.few, func(z zoneValue[V]) bool { return z.labels < labels })
	if at < 0 {
		at = len(m.few)
	}
	m.few = slices.Insert(m.few, at, zoneValue[V]{zone, labels, v})
}

// Get returns the value of a zone, or the zero value.
func (m *ZoneMap[V]) Get(zone Name) V { return m.values[zone] }

// All returns the values by zone. The caller must not change the map.
func (m *ZoneMap[V]) All() map[Name]V { return m.values }

// Zones returns the zones in the order in which they were added. The caller must not change them.
func (m *ZoneMap[V]) Zones() []Name { return m.zones }

// MaxLabels returns the number of labels of the longest zone.
func (m *ZoneMap[V]) MaxLabels() int { return m.maxLabels }

// Longest returns the value of the longest zone that contains r's name without its first from
// labels, and the number of the label at which the zone begins. It returns -1 if there is none.
func (m *ZoneMap[V]) Longest(r *Request, from int) (v V, at int) {
	labels := r.Labels()
	if m.few != nil {
		for i := range m.few {
			z := &m.few[i]
			if at = labels - z.labels; at < from {
				continue
			}
			if z.labels == 0 || string(r.name[r.offsets[at]:]) == string(z.zone) {
				return z.value, at
			}
		}
		return v, -1
	}
	if len(r.offsets) == 0 { // the message has no name, as a NOTIFY that cannot be parsed
		if v, ok := m.values[Root]; ok && from == 0 {
			return v, 0
		}
		return v, -1
	}
	for at = max(from, labels-m.maxLabels); at <= labels; at++ {
		if v, ok := m.values[Name(r.name[r.offsets[at]:])]; ok {
			return v, at
		}
	}
	return v, -1
}

// LongestOf returns the value of the longest zone that contains name, which is in wire form and
// in lower case, and the zone's length in bytes; 0 if there is none.
func (m *ZoneMap[V]) LongestOf(name []byte) (v V, length int) {
	if m.few != nil {
		for i := range m.few {
			if z := &m.few[i]; Within(name, z.zone) {
				return z.value, len(z.zone)
			}
		}
		return v, 0
	}
	for len(m.values) > 0 {
		if v, ok := m.values[Name(name)]; ok {
			return v, len(name)
		}
		if name[0] == 0 {
			break
		}
		name = name[1+name[0]:]
	}
	return v, 0
}

// HasLongerZone reports whether a zone contains name and is longer than origin, which contains
// name too. name is in wire form and may have any letter case.
func (m *ZoneMap[V]) HasLongerZone(origin Name, name []byte) bool {
	var buf [MaxName]byte
	_, n := m.LongestOf(AppendLower(buf[:0], name))
	return n > len(origin)
}
