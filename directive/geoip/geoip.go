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

// GeoIP looks up the location and the network of clients in a database: the geoip
// directive.
//
//	geoip DBFILE {
//	    edns-subnet
//	}
//
// DBFILE is a file in MaxMind's format (.mmdb) whose type contains City, Country or
// Enterprise, or ASN or ISP: GeoLite2-City, DBIP-ASN-Lite. Its path is relative to the
// directory of the directive root. The values are metadata of queries, so the server block
// needs the directive metadata, too. The values of a City, Country or Enterprise database are
//
//	geoip/city/name                     Cambridge; all names are in English
//	geoip/country/code                  GB, of ISO 3166-1
//	geoip/country/name                  United Kingdom
//	geoip/country/is_in_european_union  true or false
//	geoip/continent/code                AF, AN, AS, EU, NA, OC or SA
//	geoip/continent/name                Europe
//	geoip/latitude                      52.2242
//	geoip/longitude                     0.1315
//	geoip/timezone                      Europe/London
//	geoip/postalcode                    CB4
//	geoip/subdivisions/code             ENG,CAM: of ISO 3166-2, the largest first
//
// and the values of an ASN or ISP database
//
//	geoip/asn/number  396982
//	geoip/asn/org     GOOGLE-CLOUD-PLATFORM
//
// A value that the database does not have for an address is an empty string, "false" or
// "0". You can give geoip several times; each value comes from the first database of its
// type. A value is looked up when a directive uses it. See the directive metadata for the
// directives that can.
//
// With edns-subnet the address comes from the query's EDNS Client Subnet option (RFC
// 7871), if it has one with a valid address and a prefix length other than 0. A client can
// send any address there.
//
// The database is read into memory, and not mapped: a program that writes into a mapped file
// could end the server. A file of 92 MB takes 92 MB of resident memory, and twice as much for a
// moment when it is read again, which happens when it has changed. A new file that is not
// valid is logged, and the old database stays in use.
//
// Clients in France get other answers than the rest:
//
//	example.org:1053 {
//	    metadata
//	    geoip city.mmdb {
//	        edns-subnet
//	    }
//	    view france {
//	        expr metadata('geoip/country/code') == 'FR'
//	    }
//	    whoami
//	}
//	example.org:1053 {
//	    whoami
//	}
//
// Same as CoreDNS: syntax and values. Differs: CoreDNS has one database in a server block,
// and does not read it again; with edns-subnet it looks up 0.0.0.0 for a prefix length of 0.
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
		if err := check(g.path); err != nil {
			errs = append(errs, d.Errorf("%w", err))
		}
		errs = append(errs, d.Options(corefile.Option{Usage: "edns-subnet", Set: func(corefile.Directive) error {
			g.subnet = true
			return nil
		}}))
		b.Offer(g)
		b.OnPlanned(func() error {
			if !b.UsesMetadata() {
				b.Warn(d.Errorf("no effect without the directive metadata"))
			}
			return nil
		})
		type key struct{ path string }
		b.OnStart(func(s *config.Start) (err error) {
			g.db, err = config.Keep(s, key{g.path}, func() (*database, error) { return newDatabase(g.path, b.Log) })
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
