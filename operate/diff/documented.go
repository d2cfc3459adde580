package diff

import (
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// documented returns the reason for an intended difference between CoreDNS and Seamark, as
// in docs/reference/differences.md; "" if the difference is not intended.
func documented(q question, want, got answer, cause string) string {
	for _, d := range intendedDifferences() {
		if cause != "" && d.applies(q, want, got, cause) {
			return d.row + ": " + d.reason
		}
	}
	return ""
}

// An intended is an intended difference: the beginning of a row of
// docs/reference/differences.md and its reason there.
type intended struct {
	row, reason string
	applies     func(q question, want, got answer, cause string) bool
}

func intendedDifferences() []intended {
	between := func(want, got string, subjects ...string) func(question, answer, answer, string) bool {
		return func(q question, _, _ answer, cause string) bool {
			return cause == got+" instead of "+want && slices.Contains(subjects, q.subject)
		}
	}

	return []intended{
		{"empty non-terminals", "RFC 8020: NXDOMAIN would deny the names below",
			between("NODATA", "NXDOMAIN", subjectProtocol, subjectReverseTop)},
		{"another type at `dns-version.ZONE`, TXT of a zone or a namespace", "RFC 2308",
			func(q question, want, got answer, cause string) bool {
				text := between("NODATA", "NXDOMAIN", subjectZone, subjectNamespace)
				return between("NODATA", "NXDOMAIN", subjectVersion)(q, want, got, cause) ||
					q.qtype == dns.TypeTXT && text(q, want, got, cause) ||
					q.qtype == dns.TypeSOA && cause == "NODATA instead of NXDOMAIN"
			}},

		{"ExternalName whose target does not exist", "RFC 6604",
			func(q question, want, got answer, cause string) bool {
				return q.subject == subjectExternal && want.rcode == "NXDOMAIN" && len(want.records) > 0 &&
					(got.outcome() == "NODATA" || got.outcome() == "records")
			}},
		{"ExternalName in a loop", "the name cannot be resolved",
			func(q question, want, _ answer, _ string) bool {
				return q.subject == subjectExternal && want.rcode == "SERVFAIL" && len(want.records) > 0
			}},
		{"ExternalName, any type", "RFC 1034 §3.6.2",
			func(q question, want, got answer, cause string) bool {
				address := q.qtype == dns.TypeA || q.qtype == dns.TypeAAAA || q.qtype == dns.TypeCNAME
				return !address && between("records", "NODATA", subjectExternal)(q, want, got, cause)
			}},
		{"ExternalName whose target no directive of this server answers", "RFC 1034 §4.3.2",
			func(q question, want, got answer, cause string) bool {
				return q.qtype != dns.TypeCNAME && between("records", "NODATA", subjectExternal)(q, want, got, cause)
			}},

		{"`x.1-2-3-4.NS.pod.ZONE`", "the name does not exist", between("NXDOMAIN", "records", subjectBelowPod)},
		{"`http.tcp.SVC.NS.svc.ZONE`", "specification 2.3.2", between("NXDOMAIN", "records", subjectPlainPort)},
		{"NS of the zone", "the answer does not change when the server restarts",
			func(q question, _, got answer, _ string) bool {
				return q.subject == subjectZone && q.qtype == dns.TypeNS && got.rcode == "NOERROR"
			}},

		{"PTR of an address that several endpoints have", "an EndpointSlice can claim the address of any Pod",
			func(q question, _, _ answer, cause string) bool {
				return (q.subject == subjectReverseEP || q.subject == subjectReverse) && cause == "more records"
			}},
		{"slices whose Service does not exist", "specification 2.4.3 requires a Service",
			func(q question, want, got answer, _ string) bool {
				return q.subject == subjectReverseEP && len(want.records) == 0 && got.outcome() == "records"
			}},
		{"EndpointSlice that is not ready", "specification D3",
			func(q question, want, got answer, _ string) bool {
				return q.subject == subjectNotReady && len(want.records) > 0 && len(got.records) == 0
			}},
		{"EndpointSlices of addressType FQDN", "a name has one CNAME",
			func(q question, _, _ answer, _ string) bool { return q.subject == subjectNamed }},
		{"weight of SRV records with duplicates", "the weights add up to 100",
			func(_ question, _, _ answer, cause string) bool { return cause == "other SRV weights" }},

		{"ANY", "RFC 8482 §4.1", func(q question, _, got answer, _ string) bool {
			refused := got.outcome() == "NODATA" || strings.HasPrefix(got.outcome(), "NOTIMP") || got.hinfo()
			return q.qtype == dns.TypeANY && refused
		}},
	}
}

// hinfo reports whether the answer has HINFO records only: RFC 8482 §4.2 permits them for ANY.
func (a answer) hinfo() bool {
	for r := range a.records {
		if r.rtype != dns.TypeHINFO {
			return false
		}
	}
	return len(a.records) > 0
}
