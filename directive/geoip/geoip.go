// Package geoip has the directive geoip: metadata about client addresses from databases
// in MaxMind's format.
package geoip

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// GeoIP looks up the location and the network of clients in a database: the geoip directive.
// Its reference page is docs/reference/directives/geoip.md.
type GeoIP struct {
	path   string
	subnet bool
	db     *database
}

// Setup sets up the geoip directives of a server block: see GeoIP.
func Setup(b *config.Block, uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses {
		if err := d.Arity(1, 1); err != nil {
			errs = append(errs, err)
			continue
		}

		g := &GeoIP{path: b.Path(d.Args[0].Text)}
		errs = append(errs, d.Each(check(g.path)), d.Options(corefile.Option{Usage: "edns-subnet", Set: corefile.Flag(&g.subnet)}))

		b.Offer(g)
		b.OnPlanned(func() error {
			if !b.UsesMetadata() {
				b.Warn(d.Errorf("no effect without the directive metadata"))
			}
			return nil
		})
		b.OnStart(func(s *config.Start) (err error) {
			g.db, err = config.Keep(s, g.path, func() (*database, error) { return newDatabase(g.path, b.Log) })
			return d.Each(err)
		})
	}
	return errors.Join(errs...)
}

// Metadata implements [config.Describer].
func (g *GeoIP) Metadata(q *dns.Query, key string) (value string, ok bool) {
	return g.db.value(key, g.address(q))
}

// address returns the address to look up for q.
func (g *GeoIP) address(q *dns.Query) netip.Addr {
	if !g.subnet {
		return q.Peer.Addr()
	}
	options := q.Options
	if q.Depth() == 0 {
		// The client's own, whatever rewrite has made of them.
		options = q.Request.Options(q.Packet())
	}
	for code, data := range wire.Options(options) {
		if code == wire.OptionSubnet {
			if a, ok := subnet(data); ok {
				return a
			}
			break
		}
	}
	return q.Peer.Addr()
}

// subnet returns the address in an EDNS Client Subnet option (RFC 7871 §6).
func subnet(data []byte) (a netip.Addr, ok bool) {
	if len(data) < 4 {
		return a, false
	}

	family, bits, address := binary.BigEndian.Uint16(data), int(data[2]), data[4:]
	size := map[uint16]int{1: 4, 2: 16}[family]
	if bits == 0 || bits > 8*size || len(address) != (bits+7)/8 {
		return a, false
	}

	var full [16]byte
	copy(full[:], address)
	a, _ = netip.AddrFromSlice(full[:size])
	return a.Unmap(), true
}
