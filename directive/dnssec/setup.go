package dnssec

import (
	"errors"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// maxCapacity bounds the memory of the store to 700 MB.
const maxCapacity = 1000000

// Setup reads the dnssec directive of a server block, and its keys.
func Setup(b *config.Block, uses []corefile.Directive) error {
	directive := uses[0]
	d := &Dnssec{metrics: b.Metrics, started: &started{}}
	zones, err := b.ZonesOr(directive)
	if err != nil { // the messages about keys name a zone
		return errors.Join(config.Once(uses), err)
	}
	errs := []error{config.Once(uses)}

	var keys []*signing.Key
	errs = append(errs, directive.Options(
		corefile.Option{Usage: "key file KEY...", Set: func(o corefile.Directive) error {
			return readKeys(&keys, b, o, zones)
		}},
		corefile.Option{
			Usage: "cache_capacity CAPACITY", Default: "10000", Set: corefile.Int(&d.capacity, 1, maxCapacity),
		},
	))

	if corefile.IndexOf(directive.Body, "key") < 0 {
		errs = append(errs, directive.Errorf("no key: make one with dnssec-keygen -a ECDSAP256SHA256 -f KSK %s, "+
			"and add a line: key file FILE", zones[0]))
	}

	// With keys of both kinds, the zone-signing keys sign all but the DNSKEY records (RFC 6781 §3.1).
	d.zoneKeys, d.keyKeys = keys, keys
	if isSEP := func(k *signing.Key) bool { return k.SEP }; slices.ContainsFunc(keys, isSEP) {
		if zsks := slices.DeleteFunc(slices.Clone(keys), isSEP); len(zsks) > 0 {
			d.zoneKeys = zsks
			d.keyKeys = slices.DeleteFunc(slices.Clone(keys), func(k *signing.Key) bool { return !k.SEP })
		}
	}

	var records []byte
	for _, k := range keys {
		records = wire.AppendRecordHeader(records, wire.OwnerIsQuestion, wire.TypeDNSKEY, originalTTL, len(k.RData))
		records = append(records, k.RData...)
	}
	for _, z := range zones {
		d.zones.Set(z, &signedZone{name: z, records: records, n: len(keys)})
	}

	b.Handle(d)
	b.OnStart(func(s *config.Start) error { return d.start(s, zones, keys) })
	return errors.Join(errs...)
}

// readKeys appends the key pairs of a line.
func readKeys(keys *[]*signing.Key, b *config.Block, o corefile.Directive, zones []wire.Name) error {
	switch source := o.Args[0].Text; source {
	case "file":
	case "aws_secretsmanager":
		return o.Errorf("aws_secretsmanager is not supported: " +
			"write the keys to files, and name them after key file")
	default:
		return o.Errorf("want file, got %q", source)
	}

	var errs []error
	for _, a := range o.Args[1:] {
		k, err := signing.ReadKey(b.Path(a.Text))
		switch {
		case err != nil:
			errs = append(errs, a.Errorf(o.Path, "%w", err))
			continue
		case !slices.ContainsFunc(zones, k.Owner.Within):
			errs = append(errs, a.Errorf(o.Path, "%s is a key of %s, which is in none of the zones: "+
				"make one for %s, or add the zone after dnssec", k.File, k.Owner, zones[0]))
		case k.Weak != "":
			b.Warn(a.Errorf(o.Path, "%s has the algorithm %s, which resolvers may not accept: "+
				"make a key with dnssec-keygen -a ECDSAP256SHA256", k.File, k.Weak))
		}
		b.WarnExposed(o, k.File+".private")
		*keys = signing.AppendKey(*keys, k)
	}
	return errors.Join(errs...)
}

// start keeps the signatures of the old plan if zones, keys and capacity are the same.
func (d *Dnssec) start(s *config.Start, zones []wire.Name, keys []*signing.Key) (err error) {
	type storeKey struct {
		content  string
		capacity int
	}
	var content strings.Builder
	for _, z := range zones {
		content.WriteString(string(z))
	}
	for _, k := range keys {
		content.WriteString(k.RData)
	}

	d.store, err = config.Keep(s, storeKey{content.String(), d.capacity}, func() (*store, error) {
		return newStore(d.capacity), nil
	})
	d.signers = s.Crypto
	if err == nil {
		// The gauges are removed with this plan: no other plan has this key.
		_, err = config.Keep(s, d.started, func() (*started, error) { return d.started, nil })
	}
	return err
}

// Stop removes the gauges of the plan.
func (s *started) Stop() {
	for _, drop := range s.drops {
		drop()
	}
}
