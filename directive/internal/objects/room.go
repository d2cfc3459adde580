package objects

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A space has the objects of one namespace. The oldest have what they say, as many as fit into
// max_records: of an object that does not fit only the count is kept, and it is read again when it
// fits (reread.go). So the state depends on the objects alone, and not on the order of events.
type space struct {
	all      []*Object // the oldest first
	byKey    []*Object // the same, sorted
	need     int       // the sum of their counts
	admitted int       // objects
	count    int       // the sum of the counts of the admitted ones
}

// considered is how many times max_records a namespace may have objects. Further ones are not kept.
const considered = 2

// apply applies what has been read of an object. If something is wrong with it and it was valid
// before, its former content stays.
func (x *Objects) apply(c *change, read *Content) {
	o := x.identify(c.key, c.namespace, createdAt(c.object))
	if o == nil {
		return
	}
	delete(x.wanted, o)

	fault := read.Fault()
	if most, noun := x.settings.Most, x.settings.Noun; read.Used > most {
		fault = cmp.Or(fault, fmt.Sprintf("it has more than %d %s, which a namespace may have (max_%s)", most, noun, noun))
		read.Packed, read.Count = "", 0 // no part of it fits
	}
	if fault != "" && o.valid && o.admitted {
		x.report(o, fault)
		return
	}
	if err := x.claim.Grow(x.bytes + int64(len(read.Packed))*2 + bytesOf(read.Count)); err != nil {
		x.want(o, memoryWait)
		x.report(o, err.Error())
		return
	}

	o.valid = fault == ""
	x.setCount(o, read.Count)
	x.admit(c.namespace, o, read.Packed)
	x.report(o, fault)
}

// createdAt returns when an object was created, in seconds since 1970.
func createdAt(o cluster.Object) int64 {
	switch o := o.(type) {
	case *cluster.ConfigMap:
		return o.Created
	case *cluster.DNSEndpoint:
		return o.Created
	}
	return 0
}

// identify returns the object with a key, or a new one; nil if its namespace has too many older ones.
func (x *Objects) identify(key, namespace string, created int64) *Object {
	o := x.find(key, namespace)
	if o != nil && o.created == created {
		return o
	}
	if o != nil { // another object, which has the age of its own
		x.remove(o)
	}

	o = newObject(key, created)
	s := x.spaces[namespace]
	if s == nil {
		s = new(space)
		x.spaces[namespace] = s
	}
	if len(s.all) >= considered*x.settings.Most {
		youngest := s.all[len(s.all)-1]
		if youngest.compareAge(o) >= 0 {
			x.remove(youngest)
		}
		x.faults.full(namespace) // after remove, which finds that there is room
		if youngest.compareAge(o) < 0 {
			return nil
		}
	}

	s.all = slices.Insert(s.all, s.index(o), o)
	i, _ := s.search(key)
	s.byKey = slices.Insert(s.byKey, i, o)
	x.bytes += bytesOf(0)
	return o
}

// find returns the object with a key, or nil.
func (x *Objects) find(key, namespace string) *Object {
	if s := x.spaces[namespace]; s != nil {
		if i, ok := s.search(key); ok {
			return s.byKey[i]
		}
	}
	return nil
}

// search returns the place of a key in byKey, and whether an object has it.
func (s *space) search(key string) (i int, ok bool) {
	return slices.BinarySearchFunc(s.byKey, key, func(o *Object, key string) int { return cmp.Compare(o.key(), key) })
}

// known returns all objects.
func (x *Objects) known() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, s := range x.spaces {
			for _, o := range s.all {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// index returns the place of an object among those of its namespace.
func (s *space) index(o *Object) int {
	i, _ := slices.BinarySearchFunc(s.all, o, (*Object).compareAge)
	return i
}

// ignores reports whether a new object is not worth reading: its namespace has too many older ones.
func (x *Objects) ignores(c *change) bool {
	s := x.spaces[c.namespace]
	if s == nil || len(s.all) < considered*x.settings.Most {
		return false
	}
	return s.all[len(s.all)-1].compareAge(newObject(c.key, createdAt(c.object))) < 0
}

// admit finds which objects of a namespace fit. o, which may be nil, has the content packed if it does.
func (x *Objects) admit(namespace string, o *Object, packed string) {
	s := x.spaces[namespace]
	fits, joining, leaving := s.fit(x.settings.Most, o)
	for _, p := range leaving {
		if p == o {
			continue
		}
		x.setContent(p, "", false)
		if p.valid && x.faults.contentOf(p) != "" {
			// It had the content of its last valid state, and now needs room for that of its present one.
			p.valid = false
			x.want(p, 0)
		}
		x.report(p, x.faults.contentOf(p))
	}
	for _, p := range joining {
		if p != o {
			x.want(p, 0)
		}
	}

	switch {
	case o == nil:
	case fits:
		x.setContent(o, packed, true)
	default:
		x.setContent(o, "", false)
	}
}

// fit returns whether o, which may be nil, fits beside the older objects, and the objects that fit and
// are not admitted, and those that are and do not fit.
func (s *space) fit(most int, o *Object) (fits bool, joining, leaving []*Object) {
	others := len(s.all)
	if o != nil && !o.admitted {
		others--
	}
	if s.need <= most && len(s.all) <= most && s.admitted == others {
		return true, nil, nil // all do
	}

	objects, count := 0, 0
	for _, p := range s.all {
		has := objects < most && count+int(p.count) <= most
		if has {
			objects++
			count += int(p.count)
		}
		switch {
		case has && !p.admitted:
			joining = append(joining, p)
		case !has && p.admitted:
			leaving = append(leaving, p)
		}
		fits = fits || p == o && has
	}
	return fits, joining, leaving
}

// noRoom describes why an object is not admitted.
func (x *Objects) noRoom() string {
	most, noun := x.settings.Most, x.settings.Noun
	return fmt.Sprintf("older objects have the room of the namespace, which may have %d %s (max_%s)", most, noun, noun)
}

// bytesOf returns about the memory of an object beyond the bytes of its content.
func bytesOf(count int) int64 { return int64(200 * (1 + count)) }

// setCount sets the count of an object.
func (x *Objects) setCount(o *Object, count int) {
	more := count - int(o.count)
	s := x.spaces[o.Key().Namespace]
	o.count = int32(count)
	s.need += more
	if o.admitted {
		s.count += more
		x.bytes += bytesOf(count) - bytesOf(count-more)
	}
}

// setContent sets the content of an object, and whether it is admitted.
func (x *Objects) setContent(o *Object, packed string, admitted bool) {
	if admitted != o.admitted {
		sign := 1
		if o.admitted {
			sign = -1
		}
		s := x.spaces[o.Key().Namespace]
		s.admitted += sign
		s.count += sign * int(o.count)
		x.bytes += int64(sign) * (bytesOf(int(o.count)) - bytesOf(0))
		o.admitted = admitted
	}
	x.bytes += int64(len(packed)-len(o.packed())) * 2
	x.replace(o, packed)
}

// remove removes an object that no longer exists.
func (x *Objects) remove(o *Object) {
	namespace := o.Key().Namespace
	x.setContent(o, "", false)
	x.setCount(o, 0)
	s := x.spaces[namespace]
	i := s.index(o)
	s.all = slices.Delete(s.all, i, i+1)
	i, _ = s.search(o.key())
	s.byKey = slices.Delete(s.byKey, i, i+1)
	x.bytes -= bytesOf(0)
	delete(x.wanted, o)
	x.faults.clear(o)

	if len(s.all) == 0 {
		delete(x.spaces, namespace)
	} else {
		x.admit(namespace, nil, "")
	}
	if len(s.all) < considered*x.settings.Most {
		delete(x.faults.crowded, namespace)
	}
	x.claim.Set(x.bytes)
}

// A want is that an object has to be read again.
type want struct {
	due     time.Time // at the earliest
	awaited bool      // not all objects have been read once before it is
}

// want has an object read again, after a time at the earliest.
func (x *Objects) want(o *Object, after time.Duration) {
	if _, ok := x.wanted[o]; !ok {
		x.wanted[o] = want{due: time.Now().Add(after)}
		x.reread.Send()
	}
}
