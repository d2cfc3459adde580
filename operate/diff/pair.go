package diff

import (
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// subjectOutside is the subject of a name that the cluster has no part in.
const subjectOutside = "name outside the cluster"

// A Pair is the answers of two servers to one query.
type Pair struct {
	Name      string // absolute, in presentation form
	Type      uint16
	Want, Got *dns.Msg // of Seamark and of the other server; nil without a reply
}

// A Difference is the result of a comparison. Cause is "" if the answers are the same;
// Example is set only if they are not.
type Difference struct {
	Cause, Subject, Reason string // as in a Group
	Example                Example
}

// A Comparer compares pairs of answers as Run does. It knows no objects: what a name is the
// name of follows from its form.
type Comparer struct {
	domain string // of the cluster: absolute, in lower case
	zones  zoneList
}

// NewComparer returns a Comparer for a cluster with that domain, such as cluster.local.
func NewComparer(domain string) *Comparer {
	domain = strings.ToLower(dns.Fqdn(domain))
	return &Comparer{domain, zoneList{domain, "in-addr.arpa.", "ip6.arpa."}}
}

// Compare compares the answers of a pair.
func (c *Comparer) Compare(p Pair) Difference {
	want, got := pairAnswer(p.Want), pairAnswer(p.Got)
	want.passing = p.Want != nil && !want.aa
	q := question{strings.ToLower(p.Name), p.Type, c.subject(p.Name, want)}
	if c.zones.contain(q.name) {
		want, got = c.zones.withoutTarget(want, got)
	}
	d := Difference{Cause: c.zones.relevant(q, want, got), Subject: q.subject}
	if d.Cause == "" {
		return d
	}
	d.Reason = documented(q, want, got, d.Cause)
	if d.Reason == "" && want.passing && want.outcome() == "records" && got.outcome() == "records" {
		d.Reason = "names of upstreams: they may answer each query with other records"
	}
	d.Example = newExample(q, result{want: want, got: got})
	return d
}

// pairAnswer returns the compared parts of a reply that may be absent.
func pairAnswer(m *dns.Msg) answer {
	if m == nil {
		return answer{rcode: "no reply", whole: true}
	}
	return newAnswer(m)
}

// InCluster reports whether a name is in the domain of the cluster.
func (c *Comparer) InCluster(name string) bool { return dns.IsSubDomain(c.domain, name) }

// SearchBase returns the name that a search domain of a pod was probably appended to, "" if
// there is none. A resolver tries such names before the name itself. certain is false for a
// name that could also be that of a Service.
func (c *Comparer) SearchBase(name string) (base string, certain bool) {
	name = strings.ToLower(name)
	if !c.InCluster(name) {
		return "", false
	}
	labels := dns.SplitDomainName(name)
	labels = labels[:len(labels)-dns.CountLabel(c.domain)]
	n := len(labels)
	switch {
	case n > 3 && labels[n-1] == "svc" &&
		serviceSubject(labels[:n-1], answer{rcode: "NXDOMAIN"}) == subjectSearch:
		labels, certain = labels[:n-2], true // NAMESPACE.svc
	case n == 3 && labels[n-1] == "svc":
		labels = labels[:n-1]
	case n > 1 && labels[n-1] != "svc" && labels[n-1] != "pod" || n > 2 && labels[n-1] == "svc" && labels[n-2] == "svc":
		certain = true
	default:
		return "", false
	}
	return strings.Join(labels, ".") + ".", certain
}

// subject returns what a name is the name of, by its form and by the answer for it.
func (c *Comparer) subject(name string, want answer) string {
	name = strings.ToLower(name)
	labels := dns.SplitDomainName(name)
	switch {
	case dns.IsSubDomain("in-addr.arpa.", name):
		return reverseSubject(len(labels) - 2 - 4)
	case dns.IsSubDomain("ip6.arpa.", name):
		return reverseSubject(len(labels) - 2 - 32)
	case !dns.IsSubDomain(c.domain, name):
		return subjectOutside
	}

	labels = labels[:len(labels)-dns.CountLabel(c.domain)]

	n := len(labels)
	switch {
	case n == 0:
		return subjectZone
	case n == 1 && labels[0] == "dns-version":
		return subjectVersion
	case labels[n-1] == "svc":
		return serviceSubject(labels[:n-1], want)
	case labels[n-1] == "pod":
		return [...]string{subjectNamespace, subjectNamespace, subjectPod, subjectBelowPod}[min(n-1, 3)]
	case n == 1:
		return subjectNeighbour
	}
	return subjectSearch
}

func reverseSubject(excess int) string {
	if excess < 0 {
		return subjectReverseTop
	}
	return subjectReverse
}

// serviceSubject returns the subject of the name with these labels in front of svc.
func serviceSubject(labels []string, want answer) string {
	protocol := func(label, prefix string) bool {
		rest, ok := strings.CutPrefix(label, prefix)
		return ok && slices.Contains([]string{"tcp", "udp", "sctp"}, rest)
	}

	switch n := len(labels); {
	case n < 2:
		return subjectNamespace
	case n == 2:
		for r := range want.records {
			if r.rtype == dns.TypeCNAME {
				return subjectExternal
			}
		}
		return subjectService
	case n == 3 && protocol(labels[0], "_"):
		return subjectProtocol
	case n == 3 && want.rcode != "NXDOMAIN":
		return subjectEndpoint
	case n == 4 && protocol(labels[1], "_"):
		return subjectPort
	case n == 4 && protocol(labels[1], ""):
		return subjectPlainPort
	}
	return subjectSearch
}
