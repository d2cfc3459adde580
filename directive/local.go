package directive

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Local answers names that must not leave the machine: the local directive. Its reference page
// is docs/reference/directives/local.md.
type Local struct {
	zones  []localZone
	prefix bool
	log    *slog.Logger
	count  *metrics.Counter
}

// A localZone is a zone that local answers for. Names are in wire form.
type localZone struct {
	name      string
	labels    int
	addresses bool   // the zone's names have the addresses of localhost
	noData    bool   // all names exist, without records
	pointer   string // the name that has a PTR record, if any
}

const (
	localIPv4  = "\x03127" + string(wire.InAddrArpa)
	localZeros = "\x010\x010\x010\x010\x010\x010\x010\x010"
	localIPv6  = "\x011\x010\x010\x010\x010\x010\x010\x010" + localZeros + localZeros + localZeros +
		string(wire.IP6Arpa)
)

// SetupLocal sets up the local directive.
func SetupLocal(b *config.Block, uses []corefile.Directive) error {
	l := &Local{
		log:   b.Log,
		count: b.Metrics.Counter("coredns_local_localhost_requests_total", "Queries for localhost.<domain>."),
		zones: []localZone{
			{name: localhost, labels: 1, addresses: true},
			{name: localIPv4, labels: 3, pointer: "\x011\x010\x010" + localIPv4},
			{name: "\x010" + string(wire.InAddrArpa), labels: 3},
			{name: "\x03255" + string(wire.InAddrArpa), labels: 3},
			{name: localIPv6, labels: 34, pointer: localIPv6},
			// The designated resolvers (RFC 9462) and the properties (RFC 9606) of an upstream are not
			// those of this server: NODATA tells clients that it has none (RFC 9462 §4).
			{name: "\x08resolver\x04arpa\x00", labels: 2, noData: true},
		},
	}
	prefix := ""
	err := errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "localhost_prefix on|off", Default: "on", Set: corefile.OneOf(&prefix, "on", "off")},
	))
	l.prefix = prefix == "on"
	b.Handle(l)
	return err
}

// ServeDNS answers names in the zones, and names whose first label is
// localhost.
func (l *Local) ServeDNS(q *dns.Query) dns.Verdict {
	for i := range l.zones {
		at := q.Labels() - l.zones[i].labels
		if at >= 0 && string(q.Name()[q.LabelOffset(at):]) == l.zones[i].name {
			l.zones[i].answer(q, at)
			return dns.Done
		}
	}
	if !l.prefix || !bytes.HasPrefix(q.Name(), []byte(localhost[:len(localhost)-1])) {
		return dns.Next
	}

	l.count.Add(1)
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("local: Answered a name whose first label is localhost",
			"qname", wire.Name(q.Name()).String(), "client", q.Peer)
	}
	(&localZone{addresses: true}).answer(q, 0)
	return dns.Done
}

// answer answers for q's name, which is in z. apex is the index of the name's
// label at which the zone begins.
func (z *localZone) answer(q *dns.Query, apex int) {
	q.AA = true
	var buf [64]byte
	record := buf[:0]
	isPointer := z.pointer == string(q.Name())
	t := q.Type
	if t == wire.TypeANY {
		t = z.anyType(isPointer, apex)
	}

	switch {
	case t == wire.TypeA && z.addresses:
		record = wire.AppendAddress(record, wire.OwnerIsQuestion, localTTL, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	case t == wire.TypeAAAA && z.addresses:
		record = wire.AppendAddress(record, wire.OwnerIsQuestion, localTTL, netip.IPv6Loopback())
	case t == wire.TypePTR && isPointer, t == wire.TypeNS && apex == 0:
		record = wire.AppendRecordHeader(record, wire.OwnerIsQuestion, t, localTTL, len(localhost))
		record = append(record, localhost...)
	case t == wire.TypeSOA && apex == 0:
		record = appendLocalSOA(record, 0)
	default:
		// Names above the one with the PTR record are empty non-terminals.
		if apex > 0 && !z.addresses && !z.noData && !strings.HasSuffix(z.pointer, string(q.Name())) {
			q.RCode = wire.NXDomain
		}
		q.Answer.Append(wire.Authority, appendLocalSOA(record, q.LabelOffset(apex)), 1)
		return
	}
	q.Answer.Append(wire.Answers, record, 1)
}

// anyType returns the type of the first records that a name has, which answer ANY (RFC 8482 §4), or ANY if it has
// none.
func (z *localZone) anyType(isPointer bool, apex int) wire.Type {
	switch {
	case z.addresses:
		return wire.TypeA
	case isPointer:
		return wire.TypePTR
	case apex == 0:
		return wire.TypeNS
	}
	return wire.TypeANY
}

// ExplainDNS implements [dns.Explainer].
func (l *Local) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	if v == dns.Next {
		return nil
	}
	for _, z := range l.zones {
		if wire.Within(q.Name(), wire.Name(z.name)) {
			return []dns.Cause{{Text: "names in " + wire.Name(z.name).String() + " do not leave the machine"}}
		}
	}
	return []dns.Cause{{
		Text: "the first label is localhost, to which a search path has added the others (localhost_prefix)",
	}}
}
