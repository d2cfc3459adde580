package cmd_test

import (
	"os"
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
