package signing

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// Replaces reports whether t is a type of records that [Write] adds or that it would make
// wrong. A zone without signatures must not have any.
func Replaces(t wire.Type) bool {
	switch t {
	case wire.TypeRRSIG, wire.TypeNSEC, wire.TypeNSEC3, wire.TypeNSEC3PARAM, wire.TypeDNSKEY,
		wire.TypeCDS, wire.TypeCDNSKEY, wire.TypeZONEMD:
		return true
	}
	return false
}

// Digest returns a text that differs between zones with other records, and keys.
func Digest(z *zone.Zone, keys []*Key) string {
	h := sha256.New()
	write := func(s string) {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		_, _ = io.WriteString(h, s)
	}

	write("1") // changes with the result of Write
	for _, k := range keys {
		write(k.RData)
	}

	for _, o := range z.Owners() {
		o.RRsets(func(t wire.Type, ttl uint32, rdata []string) {
			for _, r := range rdata {
				write(string(wire.AppendRecordHeader(nil, o.Name, t, ttl, len(r))))
				write(r)
			}
		})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Write writes a zone as a signed zone file: first the SOA record with another serial
// number, then the other records of the zone, the DNSKEY, CDS and CDNSKEY records of the
// keys, and the NSEC records. Each key signs everything but glue and the NS records of
// delegations.
func Write(ctx context.Context, to io.Writer, z *zone.Zone, keys []*Key, v Validity, serial uint32) error {
	v.Signer = z.Origin()
	w := writer{Writer: bufio.NewWriter(to), keys: keys, validity: v}
	owners := z.Owners()
	for i, o := range owners {
		if err := ctx.Err(); err != nil {
			return err
		}

		w.sets = w.sets[:0]
		o.RRsets(func(t wire.Type, ttl uint32, rdata []string) {
			w.sets = append(w.sets, RRset{Owner: wire.Lower(o.Name), Type: t, TTL: ttl, RData: rdata})
		})
		if i == 0 { // the first owner is the zone's own name
			if err := w.addApex(serial); err != nil {
				return err
			}
		}

		if !o.Hidden {
			next := z.Origin()
			if j := slices.IndexFunc(owners[i+1:], func(o zone.Owner) bool { return !o.Hidden }); j >= 0 {
				next = wire.Lower(owners[i+1+j].Name)
			}
			w.addNSEC(o.Delegated, next)
		}

		for _, s := range w.sets {
			isSigned := !o.Hidden && (!o.Delegated || s.Type == wire.TypeDS || s.Type == wire.TypeNSEC)
			if err := w.write(o.Name, s, isSigned); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// A writer writes the RRsets of a zone.
type writer struct {
	*bufio.Writer
	keys      []*Key
	validity  Validity
	sets      []RRset // of the present name
	denialTTL uint32  // of NSEC records (RFC 9077)
}

// addApex adds the records of the zone's own name, and makes the SOA record the first.
func (w *writer) addApex(serial uint32) error {
	at := slices.IndexFunc(w.sets, func(s RRset) bool { return s.Type == wire.TypeSOA })
	const numbers = 20 // bytes of the five numbers at the end of the RDATA
	if at < 0 || len(w.sets[at].RData[0]) < numbers {
		return errors.New("no SOA record")
	}

	soa := w.sets[at]
	rdata := []byte(soa.RData[0])
	end := rdata[len(rdata)-numbers:]
	binary.BigEndian.PutUint32(end, serial)
	soa.RData = []string{string(rdata)}
	w.denialTTL = min(soa.TTL, binary.BigEndian.Uint32(end[16:]))
	w.sets = slices.Insert(slices.Delete(w.sets, at, at+1), 0, soa)

	var digests, keys []string
	for _, k := range w.keys {
		keys = append(keys, k.RData)
		digests = append(digests, k.ds(soa.Owner))
	}
	w.sets = append(w.sets,
		RRset{soa.Owner, wire.TypeDNSKEY, soa.TTL, keys},
		RRset{soa.Owner, wire.TypeCDS, soa.TTL, digests},
		RRset{soa.Owner, wire.TypeCDNSKEY, soa.TTL, keys})
	return nil
}

// addNSEC adds the NSEC record of the present name.
func (w *writer) addNSEC(delegated bool, next wire.Name) {
	types := []wire.Type{wire.TypeRRSIG, wire.TypeNSEC}
	for _, s := range w.sets {
		if !delegated || s.Type == wire.TypeNS || s.Type == wire.TypeDS {
			types = append(types, s.Type)
		}
	}
	slices.Sort(types)
	w.sets = append(w.sets, RRset{
		Owner: w.sets[0].Owner, Type: wire.TypeNSEC, TTL: w.denialTTL,
		RData: []string{string(AppendNSEC(nil, next, types))},
	})
}

// write writes the records of a set, and their signatures.
func (w *writer) write(owner string, s RRset, isSigned bool) error {
	name := string(wire.AppendText(nil, []byte(owner)))
	rrs, err := s.unpack()
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, s.Type, err)
	}
	if isSigned {
		signed := rrs
		for _, k := range w.keys {
			sig, err := k.sign(signed, w.validity)
			if err != nil {
				return fmt.Errorf("signing %s %s: %w", name, s.Type, err)
			}
			sig.Hdr.Ttl = s.TTL
			rrs = append(rrs, sig)
		}
	}

	for _, rr := range rrs {
		if err := w.writeRecord(name, rr); err != nil {
			return fmt.Errorf("%s %s: %w", name, s.Type, err)
		}
	}
	return nil
}

// writeRecord writes a record as text. If a parser would read another record from the
// text, it writes the form of RFC 3597.
func (w *writer) writeRecord(name string, rr dns.RR) error {
	rdata, err := pack(rr)
	if err != nil {
		return err
	}
	h := rr.Header()
	h.Name = name
	text := rr.String()
	r, err := zonefile.ParseRecord(text, wire.Root, 0)
	if err != nil || r.Type != wire.Type(h.Rrtype) || r.TTL != h.Ttl || r.RData != rdata {
		text = fmt.Sprintf("%s\t%d\tIN\tTYPE%d\t\\# %d %x", name, h.Ttl, h.Rrtype, len(rdata), rdata)
	}
	_, err = w.WriteString(text + "\n")
	return err
}
