package records

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// A content is the records of an object, and what is wrong with it.
type content struct {
	draft
	objects.Content

	namespace string
	rules     *objects.Delegations
	ttl       uint32 // of records without one
	most      int    // what it may use, in records
}

// errFull ends the reading of an object with too many records.
var errFull = errors.New("too many records")

// readObject reads an object. Valid records of an object with errors are read, too, those of a
// zone's text up to the first error in it.
func readObject(o cluster.Object, rules *objects.Delegations, ttl uint32, most int) *objects.Content {
	c := &content{namespace: o.Key().Namespace, rules: rules, ttl: ttl, most: most}
	switch o := o.(type) {
	case *cluster.ConfigMap:
		for _, key := range slices.Sorted(maps.Keys(o.Data)) {
			if c.isFull() {
				break
			}
			c.readKey(key, o.Data[key])
		}
	case *cluster.DNSEndpoint:
		for i := range o.Endpoints {
			if c.isFull() {
				break
			}
			c.readEndpoint(i, &o.Endpoints[i])
		}
	}
	c.Packed, c.Count = c.pack(), c.records
	return &c.Content
}

// isFull reports whether the object has more than it may have.
func (c *content) isFull() bool { return c.Used > c.most }

// fail records an error.
func (c *content) fail(at place, err error) { c.Fail(at.file, at.line, err) }

// add adds a record if the object may have it. Any error but errFull is recorded.
func (c *content) add(at place, owner wire.Name, r zonefile.Record) error {
	c.Used += units(owner, r.RData)
	if c.isFull() {
		return errFull
	}
	err := c.rules.Check(c.namespace, owner)
	switch {
	case err != nil:
	case r.Class != wire.ClassIN:
		err = fmt.Errorf("want class IN, got %s", r.Class)
	case isOfZones(r.Type):
		err = fmt.Errorf("%s records are for zones, and these records are none", r.Type)
	default:
		err = c.draft.add(at, owner, r)
	}
	if err != nil {
		c.fail(at, err)
	}
	return nil
}

// isOfZones reports whether records of a type have a meaning only in a zone.
func isOfZones(t wire.Type) bool {
	switch t {
	case wire.TypeSOA, wire.TypeNS, wire.TypeDNAME, wire.TypeZONEMD,
		wire.TypeDS, wire.TypeDNSKEY, wire.TypeRRSIG, wire.TypeNSEC, wire.TypeNSEC3, wire.TypeNSEC3PARAM, wire.TypeCDS, wire.TypeCDNSKEY:
		return true
	}
	return false
}

// readKey reads one key of a ConfigMap, whose end names the format of its text.
func (c *content) readKey(key, text string) {
	switch format := key[strings.LastIndexByte(key, '.')+1:]; format {
	case "hosts":
		c.readHosts(key, text)
	case "zone":
		// The parser overlooks some errors of a last line without an end.
		err := zonefile.ReadText(key, text+"\n", wire.Root, c.ttl, c.most, func(r zonefile.Record) error {
			return c.add(place{key, r.Line}, r.Owner, r)
		})
		switch {
		case err == nil || errors.Is(err, errFull):
		case errors.Is(err, zonefile.ErrTooMany):
			c.Used = max(c.Used, c.most+1)
		default:
			at, _ := errors.AsType[*zonefile.Error](err)
			c.fail(place{key, at.Line}, at.Err)
		}
	default:
		c.fail(place{key, 0}, errors.New("want a key that is or ends in hosts or zone, such as hosts or shop.zone"))
	}
}

// readHosts reads lines of a hosts file.
func (c *content) readHosts(key, text string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		at := place{key, number}
		add := func(addr netip.Addr, name []byte) {
			if hostsfile.IsWildcard(name) {
				c.fail(at, errors.New("a line of hosts has no wildcards here: write the record in a zone"))
				return
			}
			_ = c.add(at, wire.Name(name), addressRecord(addr, c.ttl))
		}
		hostsfile.Parse(line, "", add, func(e hostsfile.Error) { c.fail(at, errors.New(e.Text)) })
		if c.isFull() {
			return
		}
	}
}

func addressRecord(addr netip.Addr, ttl uint32) zonefile.Record {
	t := wire.TypeA
	if addr.Is6() {
		t = wire.TypeAAAA
	}
	return zonefile.Record{Type: t, Class: wire.ClassIN, TTL: ttl, RData: string(addr.AsSlice())}
}

// readEndpoint reads an element of a DNSEndpoint's spec.endpoints, by its index.
func (c *content) readEndpoint(i int, e *cluster.EndpointRecords) {
	at := place{fmt.Sprintf("spec.endpoints[%d]", i), 0}
	owner, err := wire.ParseName(e.Name)
	kind, known := wire.ParseType(e.Type)
	ttl := c.ttl
	switch {
	case err != nil:
		c.fail(at, fmt.Errorf("dnsName: not a name: %w", err))
		return
	case !known:
		c.fail(at, fmt.Errorf("recordType: unknown type %q", e.Type))
		return
	case e.TTL < 0 || e.TTL > math.MaxInt32:
		c.fail(at, fmt.Errorf("recordTTL: want 0..2147483647, got %d", e.TTL))
		return
	case len(e.Targets) == 0:
		c.fail(at, fmt.Errorf("targets: %s has none", owner))
		return
	case e.TTL > 0:
		ttl = uint32(e.TTL)
	}

	for _, target := range e.Targets {
		r, err := endpointRecord(kind, target, ttl)
		if err == nil {
			_ = c.add(at, owner, r) // isFull tells
		} else {
			c.fail(at, fmt.Errorf("targets: %s %s: %w", owner, kind, err))
		}
		if c.isFull() {
			return
		}
	}
}

// endpointRecord parses a target of a DNSEndpoint: RDATA as in a zone file, with absolute names. A
// TXT record is one string, with or without quotes.
func endpointRecord(t wire.Type, target string, ttl uint32) (zonefile.Record, error) {
	if addr, err := netip.ParseAddr(target); err == nil && addr.Zone() == "" {
		if r := addressRecord(addr, ttl); r.Type == t {
			return r, nil
		}
	}
	if t == wire.TypeTXT && !strings.HasPrefix(target, `"`) {
		var b strings.Builder
		quote(&b, target)
		target = b.String()
	}
	return zonefile.ParseRecord(". "+t.String()+" "+target, wire.Root, ttl)
}
