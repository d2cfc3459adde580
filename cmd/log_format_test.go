package cmd_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/program"
)

// With -log-format=json each line of output is a JSON object: the start, messages with attributes,
// errors, and queries with the keys that CoreDNS has for them.
func TestLogFormatJSON(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "Corefile")
	write(t, file, ".:0 {\n bind 127.0.0.1\n log . \"{name} \\\"{rcode}\\\" {/x/y}\"\n errors\n whoami\n}\n"+
		"broken.test:0 {\n bind 127.0.0.1\n log . \"{name}\"\n errors\n forward . 127.0.0.1:1 {\n  max_fails 0\n }\n}\n")
	p := launch(t, program.Command(t, dir, "-conf", file, "-log-format=json"), os.Stderr, "")
	next := func(key, text string) (record map[string]any) {
		t.Helper()
		for {
			line := p.line()
			record = map[string]any{}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("got the line %q, want a JSON object: %v", line, err)
			}
			if value, _ := record[key].(string); strings.Contains(value, text) {
				return record
			}
		}
	}

	ports := []string{}
	for range 2 {
		words, _, _ := strings.Cut(next("msg", ".:")["msg"].(string), " on ")
		ports = append(ports, words[strings.LastIndex(words, ":")+1:])
	}
	next("msg", "linux/")

	m := new(dns.Msg).SetQuestion("Www.example.org.", dns.TypeA).SetEdns0(1232, true)
	if _, err := dns.Exchange(m, "127.0.0.1:"+ports[0]); err != nil {
		t.Fatal(err)
	}
	record := next("plugin", "log")
	want := []string{"bufsize", "client_ip", "client_port", "dnssec_ok", "duration_seconds", "id", "level", "msg", "opcode", "plugin",
		"protocol", "qclass", "qname", "qtype", "rcode", "request_size", "response_size", "time"}
	if keys := slices.Sorted(maps.Keys(record)); !slices.Equal(keys, want) {
		t.Errorf("a query: got the keys %q, want %q", keys, want)
	}
	for key, want := range map[string]any{
		"level": "INFO", "msg": `www.example.org. "NOERROR" -`, "client_ip": "127.0.0.1", "qname": "www.example.org.", "qtype": "A",
		"qclass": "IN", "protocol": "udp", "id": float64(m.Id), "opcode": 0.0, "request_size": float64(m.Len()),
		"dnssec_ok": true, "bufsize": 1232.0, "rcode": "NOERROR",
	} {
		if record[key] != want {
			t.Errorf("a query: %s: got %v, want %v", key, record[key], want)
		}
	}

	if _, err := dns.Exchange(new(dns.Msg).SetQuestion("x.broken.test.", dns.TypeA), "127.0.0.1:"+ports[1]); err != nil {
		t.Fatal(err)
	}
	records := []map[string]any{next("plugin", ""), next("plugin", "")}
	slices.SortFunc(records, func(a, b map[string]any) int { return strings.Compare(a["plugin"].(string), b["plugin"].(string)) })
	if r := records[0]; r["plugin"] != "errors" || r["level"] != "ERROR" || !strings.HasPrefix(r["msg"].(string), "2 x.broken.test. A: ") {
		t.Errorf("an error: got %v, want one of plugin errors with level ERROR", r)
	}
	if r := records[1]; r["rcode"] != "SERVFAIL" {
		t.Errorf("a query that failed: got %v, want rcode SERVFAIL", r)
	}
	p.stop()
}

// Another format is a mistake in the command line.
func TestLogFormatUnknown(t *testing.T) {
	_, stderr, code := run(t, t.TempDir(), "", "-log-format=xml")
	if code != 2 || !strings.Contains(stderr, `--log-format: want text or json, got "xml"`) {
		t.Errorf("got status %d and %q, want 2 and the formats", code, stderr)
	}
}
