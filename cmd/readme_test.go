package cmd_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The README's first question gets the answer that the README shows, from what
// `make run` starts.
func TestReadme(t *testing.T) {
	makefile := read(t, "../Makefile")
	run := regexp.MustCompile(`(?m)^\tbin/seamark (serve --manifests examples --listen 127\.0\.0\.1):1053$`).FindStringSubmatch(makefile)
	if run == nil {
		t.Fatal("make run is something else now")
	}
	shown := regexp.MustCompile("(?s)```console\n\\$ dig @127\\.0\\.0\\.1 -p 1053 \\+noall \\+answer (\\S+)\n(.*?)```").FindStringSubmatch(read(t, "../README.md"))
	if shown == nil {
		t.Fatal("the README shows no dig")
	}
	p := serve(t, "..", "", strings.Fields(run[1]+":0")...)
	p.until("  dig @127.0.0.1") // it waits for the data
	reply, err := ask("udp", p.ports[0], dns.Fqdn(shown[1]), dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, rr := range reply.Answer {
		got.WriteString(rr.String() + "\n")
	}
	if strings.Join(strings.Fields(got.String()), " ") != strings.Join(strings.Fields(shown[2]), " ") {
		t.Errorf("the answer is\n%sand the README shows\n%s", got.String(), shown[2])
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
