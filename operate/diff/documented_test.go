package diff

import (
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Each intended difference is a row of the page, with its reason.
func TestIntendedInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range intendedDifferences() {
		found := false
		for line := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(line, "| "+d.row) && strings.Contains(line, d.reason)
		}
		if !found {
			t.Errorf("docs/reference/differences.md: want a row that begins with %q and has the reason %q", d.row, d.reason)
		}
	}
}

// CoreDNS answers SOA queries with NODATA for names that do not exist: among them headless
// Services without endpoints, and Services of type ExternalName whose target is an address.
func TestDocumentedSOA(t *testing.T) {
	for _, subject := range []string{subjectNeighbour, subjectHeadless, subjectExternal} {
		q := question{name: "web.shop.svc.cluster.local.", qtype: dns.TypeSOA, subject: subject}
		if got := documented(q, answer{rcode: "NXDOMAIN"}, answer{rcode: "NOERROR"}, "NODATA instead of NXDOMAIN"); got == "" {
			t.Errorf("NODATA instead of NXDOMAIN for SOA of a %s: not documented, want a reason", subject)
		}
		q.qtype = dns.TypeA
		if got := documented(q, answer{rcode: "NXDOMAIN"}, answer{rcode: "NOERROR"}, "NODATA instead of NXDOMAIN"); got != "" {
			t.Errorf("NODATA instead of NXDOMAIN for A of a %s: got the reason %q, want none", subject, got)
		}
	}
}
