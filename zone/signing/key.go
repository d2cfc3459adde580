// Package signing reads the key files of DNSSEC, and makes its records: signatures,
// NSEC records, and digests of keys. The directive dnssec calls it when a signature is
// needed, and the directive sign in the background, for whole zones. Package miekg/dns parses
// the keys and does the arithmetic; its types are not part of the API.
package signing

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// A Key is a key pair that signs zones.
type Key struct {
	File  string    // its path without .key and .private
	Owner wire.Name // the zone that it was made for
	RData string    // of its DNSKEY record
	Tag   uint16
	// SEP is the flag of a key-signing key (RFC 4034 §2.1.1).
	SEP bool
	// Weak is the mnemonic of an algorithm with SHA-1, which validators may not accept
	// (RFC 9905), or "".
	Weak string

	public  *dns.DNSKEY
	private crypto.Signer
}

// AppendKey appends k unless keys has it already: it may be named twice.
func AppendKey(keys []*Key, k *Key) []*Key {
	if slices.ContainsFunc(keys, func(other *Key) bool { return other.RData == k.RData }) {
		return keys
	}
	return append(keys, k)
}

// maxPrivate is more than the size of the largest file with a private key.
const maxPrivate = 64 << 10

// ReadKey reads a key pair from two files as dnssec-keygen writes them. path is their
// common path, or the path of one of them.
func ReadKey(path string) (*Key, error) {
	base := strings.TrimSuffix(strings.TrimSuffix(path, ".key"), ".private")
	k := &Key{File: base}
	if err := k.readPublic(base + ".key"); err != nil {
		return nil, err
	}
	if err := k.readPrivate(base + ".private"); err != nil {
		return nil, err
	}

	// A signature of any RRset shows whether the two files belong together.
	set := RRset{Owner: k.Owner, Type: wire.TypeDNSKEY, TTL: 1, RData: []string{k.RData}}
	rrs, err := set.unpack()
	if err != nil {
		return nil, fmt.Errorf("%s.key: %w", base, err)
	}
	sig, err := k.sign(rrs, Validity{Signer: k.Owner})
	if err == nil {
		err = sig.Verify(k.public, rrs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.private: the private key does not belong to %[1]s.key: "+
			"copy both files of one key pair", base)
	}
	return k, nil
}

func (k *Key) readPublic(path string) error {
	_, err := zonefile.Read(path, wire.Root, func(r zonefile.Record) error {
		if r.Type != wire.TypeDNSKEY {
			return fmt.Errorf("want a DNSKEY record, got %s", r.Type)
		}
		if k.public != nil {
			return errors.New("want one DNSKEY record, got more")
		}

		set := RRset{Owner: r.Owner, Type: r.Type, TTL: r.TTL, RData: []string{r.RData}}
		rrs, err := set.unpack()
		if err != nil {
			return err
		}

		k.public = rrs[0].(*dns.DNSKEY)
		k.Owner, k.RData, k.Tag = r.Owner, r.RData, k.public.KeyTag()
		return k.check()
	})
	if err == nil && k.public == nil {
		err = fmt.Errorf("%s: want a DNSKEY record, got nothing", path)
	}
	return err
}

// check returns an error if the public key cannot sign zones.
func (k *Key) check() error {
	if k.public.Flags&dns.ZONE == 0 {
		return fmt.Errorf("flags %d: not the key of a zone: make one with dnssec-keygen", k.public.Flags)
	}
	if k.public.Flags&dns.REVOKE != 0 {
		return errors.New("the key is revoked: remove it")
	}

	k.SEP = k.public.Flags&dns.SEP != 0
	switch k.public.Algorithm {
	case dns.RSASHA256, dns.RSASHA512, dns.ECDSAP256SHA256, dns.ECDSAP384SHA384, dns.ED25519:
	case dns.RSASHA1, dns.RSASHA1NSEC3SHA1:
		k.Weak = dns.AlgorithmToString[k.public.Algorithm]
	default:
		return fmt.Errorf("algorithm %d (%s) is not supported: make a key with dnssec-keygen -a ECDSAP256SHA256",
			k.public.Algorithm, cmp.Or(dns.AlgorithmToString[k.public.Algorithm], "unknown"))
	}
	return nil
}

func (k *Key) readPrivate(path string) error {
	text, err := watch.Read(path, 1<<20) // its least limit; os.ReadFile would block at a named pipe
	if err == nil && len(text) > maxPrivate {
		err = errors.New("not a file with a key")
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if k.private = parsePrivate(k.public, text); k.private == nil {
		return fmt.Errorf("%s: want a private key for the algorithm %s as dnssec-keygen writes it",
			path, dns.AlgorithmToString[k.public.Algorithm])
	}
	return nil
}

// parsePrivate returns the private key in a file's text, or nil if it is not one for the
// algorithm of the public key.
func parsePrivate(public *dns.DNSKEY, text string) crypto.Signer {
	private, err := public.ReadPrivateKey(strings.NewReader(text), "")
	if err != nil {
		return nil
	}

	switch p := private.(type) {
	case *rsa.PrivateKey:
		rsaAlgorithm := public.Algorithm <= dns.RSASHA512
		if !rsaAlgorithm || p.N == nil || p.D == nil || p.Primes[0] == nil || p.Primes[1] == nil {
			return nil
		}
		// Validate would take seconds for a number of some kilobytes. RFC 3110 §2 ends at 4096 bits.
		size := min(p.N.BitLen(), 4096)
		if max(p.N.BitLen(), p.D.BitLen(), p.Primes[0].BitLen(), p.Primes[1].BitLen()) > size || p.Validate() != nil {
			return nil
		}
		p.Precompute() // it signs several times as fast
		return p
	case *ecdsa.PrivateKey:
		if p.Curve == nil {
			return nil
		}
		if _, err := p.Bytes(); err != nil {
			return nil
		}
		return p
	case ed25519.PrivateKey:
		if public.Algorithm != dns.ED25519 || len(p) != ed25519.PrivateKeySize {
			return nil
		}
		return p
	}
	return nil
}

// ds returns the RDATA of the DS record for the key in a zone, with a digest of SHA-256 (RFC 4509).
func (k *Key) ds(zone wire.Name) string {
	key := *k.public
	key.Hdr.Name = zone.String()
	ds := key.ToDS(dns.SHA256)
	if ds == nil {
		return ""
	}
	ds.Hdr = dns.RR_Header{Name: ".", Rrtype: dns.TypeDS, Class: dns.ClassINET}
	rdata, err := pack(ds)
	if err != nil {
		return ""
	}
	return rdata
}
