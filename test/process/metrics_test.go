//go:build unix

package process

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// varies matches series whose values depend on the time or on the moment of the scrape.
	varies = regexp.MustCompile(`duration_seconds_(bucket|sum)|^coredns_(health_|hosts_reload_timestamp)`)

	// differs matches series whose values differ as docs/reference/directives/prometheus.md and
	// docs/reference/differences.md say: sizes of replies, replies to queries that acl drops, lookups of dns64 and
	// autopath, signatures of authority sections, and earlier names of forward.
	differs = regexp.MustCompile(`^coredns_dns_response_size_bytes_(bucket|sum)|_(responses_total|count)\{.*PORT4",.*acl|` +
		`\$PORT9"|_template_matches_total.*PORT12"|^coredns_dnssec_cache|^coredns_(forward|reload)_`)

	// ofServer matches labels whose values belong to one server, or to one Corefile, and the plugin of a reply,
	// which differs as prometheus.md says.
	ofServer = regexp.MustCompile(`(value|version|revision|goversion|plugin)="[^"]*"`)
)

// After the queries of the script metrics Seamark has each series of CoreDNS, with its type, labels,
// bounds and value. A series that only Seamark has is 0.
func TestCoreDNSMetrics(t *testing.T) {
	if *coredns == "" {
		t.Skip("compares with the program of -coredns")
	}
	s, archive := read(t, "../../testdata/process/metrics.txt")
	scrape := func(program string) map[string]string {
		s.program = program
		s.parts(archive)
		defer s.process.stop()
		return s.series("http://127.0.0.1:" + s.vars["$PORT2"] + "/metrics")
	}

	want, got := scrape(*coredns), scrape("")
	for name, value := range want {
		if other, ok := got[name]; !ok {
			t.Errorf("only CoreDNS has %s %s", name, value)
		} else if other != value && !varies.MatchString(name) && !differs.MatchString(name) {
			t.Errorf("%s: Seamark has %s, CoreDNS %s", name, other, value)
		}
	}
	for name, value := range got {
		if _, ok := want[name]; !ok && value != "0" && !strings.HasPrefix(name, "TYPE ") && !differs.MatchString(name) {
			t.Errorf("only Seamark has %s %s", name, value)
		}
	}
	if len(want) < 500 {
		t.Errorf("CoreDNS: got %d series, want 500 or more", len(want))
	}
}

// series returns the values of the series at a URL whose names begin with coredns_, and the types as values
// of "TYPE NAME". Ports are those of the script.
func (s *script) series(url string) map[string]string {
	_, body, err := page(url)
	if err != nil {
		s.t.Fatal(err)
	}
	var ports []string
	for name, port := range s.vars {
		ports = append(ports, ":"+port+`"`, ":"+name+`"`)
	}

	found := map[string]string{}
	for line := range strings.Lines(strings.NewReplacer(ports...).Replace(string(body))) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "# ")
		name, value := line[:strings.LastIndex(line, " ")], line[strings.LastIndex(line, " ")+1:]
		if strings.HasPrefix(name, "coredns_") || strings.HasPrefix(name, "TYPE coredns_") {
			name = ofServer.ReplaceAllString(name, "$1")
			found[name] = sum(found[name], value)
		}
	}
	return found
}

// sum adds the values of two series that ofServer has made equal: only counters of replies have a plugin.
func sum(a, b string) string {
	x, err := strconv.Atoi(a)
	y, other := strconv.Atoi(b)
	if err != nil || other != nil {
		return b
	}
	return strconv.Itoa(x + y)
}
