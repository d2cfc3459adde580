package cmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The server of `make run` returns the answer that README.md shows.
func TestReadme(t *testing.T) {
	makefile := read(t, "../Makefile")
	run := regexp.MustCompile(`(?m)^\tbin/seamark (serve --manifests examples --listen 127\.0\.0\.1):1053 --admin localhost:8053$`).FindStringSubmatch(makefile)
	if run == nil {
		t.Fatal("Makefile: want the command line of make run")
	}
	shown := regexp.MustCompile("(?s)```console\n\\$ dig @127\\.0\\.0\\.1 -p 1053 \\+noall \\+answer (\\S+)\n(.*?)```").FindStringSubmatch(read(t, "../README.md"))
	if shown == nil {
		t.Fatal("README.md: want a dig command with its output")
	}
	p := serve(t, "..", "", strings.Fields(run[1]+":0")...)
	p.until("  dig @127.0.0.1") // printed when the data is complete
	reply, err := ask("udp", p.ports[0], dns.Fqdn(shown[1]), dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, rr := range reply.Answer {
		got.WriteString(rr.String() + "\n")
	}
	if strings.Join(strings.Fields(got.String()), " ") != strings.Join(strings.Fields(shown[2]), " ") {
		t.Errorf("%s A: got\n%s\nwant, as in README.md,\n%s", shown[1], got.String(), shown[2])
	}
	p.stop()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A default of TARGETPLATFORM would hide the value that BuildKit sets: an image for arm64 would get
// a program for amd64. A builder that sets none builds for amd64.
func TestDockerfilePlatform(t *testing.T) {
	text := read(t, "../Dockerfile")
	if !regexp.MustCompile(`(?m)^ARG TARGETPLATFORM$`).MatchString(text) ||
		!strings.Contains(text, `-platforms "${TARGETPLATFORM:-linux/amd64}"`) {
		t.Errorf("Dockerfile: got\n%s\nwant ARG TARGETPLATFORM without a default, and one in RUN", text)
	}
}

// Names that no directive answers are SERVFAIL, as air-gapped.md says of a Corefile without forward.
func TestAirGappedWithoutForward(t *testing.T) {
	manifests, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	text := ".:0 {\n bind 127.0.0.1\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n manifests " + manifests + "\n}\n cache 30\n}\n"
	p := serve(t, "/", text, "-conf", "-")
	reply, err := ask("udp", p.ports[0], "www.example.org.", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("www.example.org. A: got %s, want SERVFAIL", dns.RcodeToString[reply.Rcode])
	}
	if !strings.Contains(read(t, "../docs/how-to/air-gapped.md"), "are then SERVFAIL at once") {
		t.Error("air-gapped.md: want SERVFAIL for names outside the cluster")
	}
	p.stop()
}

// The pages have one number for the memory of 10,000 Services.
func TestDocumentedMemory(t *testing.T) {
	row := regexp.MustCompile(`(?m)^- 10,000 Services with 150,000 endpoints: ([0-9]+ MB) in all|^\|[^|]*10,000 Services and 150,000 endpoints, from the API \| ([0-9]+ MB) resident`)
	found, pages := map[string]string{}, 0
	for _, page := range []string{"../docs/explanation/performance.md", "../docs/how-to/sizing.md"} {
		for _, m := range row.FindAllStringSubmatch(read(t, page), -1) {
			found[m[1]+m[2]] += page + " "
			pages++
		}
	}
	if len(found) != 1 || pages != 2 {
		t.Errorf("memory for 10,000 Services with 150,000 endpoints: got %q, want one number on two pages", found)
	}
}
