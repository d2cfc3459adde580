package directive

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/wire"
)

func TestPrometheus(t *testing.T) {
	h := &fixedVerdict{verdict: dns.Next}
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0\nerrors\nwhoami\n}", h)
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	r.exchange(packet(t, "example.org", wire.TypeNAPTR), dns.TCP, "[fd00::1]:9")
	h.verdict, h.code, h.err = dns.Done, wire.ServFail, errors.New("no")
	r.exchange(packet(t, "example.org", wire.TypePTR), dns.UDP, client)
	h.verdict = dns.Drop
	r.exchange(packet(t, "example.org", wire.TypePTR), dns.UDP, client)
	for prefix, want := range map[string]string{
		"coredns_dns_requests_total": `coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="tcp",family="2",type="other"} 1
coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="udp",family="1",type="A"} 2
coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="udp",family="1",type="PTR"} 2
`,
		"coredns_dns_responses_total": `coredns_dns_responses_total{server="dns://:53",zone=".",view="",rcode="NOERROR",plugin="whoami"} 3
coredns_dns_responses_total{server="dns://:53",zone=".",view="",rcode="SERVFAIL",plugin="test"} 1
`,
		"coredns_dns_do": `coredns_dns_do_requests_total{server="dns://:53",view="",zone="."} 0
`,
		"coredns_dns_request_duration_seconds_bucket{server=\"dns://:53\",zone=\".\",view=\"\",le=\"0.00025\"}": `coredns_dns_request_duration_seconds_bucket{server="dns://:53",zone=".",view="",le="0.00025"} 4
`,
		"coredns_dns_request_duration_seconds_c": `coredns_dns_request_duration_seconds_count{server="dns://:53",zone=".",view=""} 4
`,
		"coredns_dns_request_size_bytes_s": `coredns_dns_request_size_bytes_sum{server="dns://:53",zone=".",view="",proto="tcp"} 29
coredns_dns_request_size_bytes_sum{server="dns://:53",zone=".",view="",proto="udp"} 116
`,
		"coredns_dns_response_size_bytes_c": `coredns_dns_response_size_bytes_count{server="dns://:53",zone=".",view="",proto="tcp"} 1
coredns_dns_response_size_bytes_count{server="dns://:53",zone=".",view="",proto="udp"} 3
`,
		"coredns_plugin_enabled": `coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="errors"} 1
coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="prometheus"} 1
coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="test"} 1
coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="whoami"} 1
`,
		"coredns_panics_total": "coredns_panics_total 0\n",
	} {
		if got := r.metrics(prefix); got != want {
			t.Errorf("%s: got\n%swant\n%s", prefix, got, want)
		}
	}
	code, body := r.page("/metrics")
	if code != 200 {
		t.Errorf("/metrics: got %d, want 200", code)
	}
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_start_time_seconds ", "coredns_dns_requests_total{"} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("/metrics: %s is missing", name)
		}
	}
}

func TestPrometheusErrors(t *testing.T) {
	wantErrors(t, ".:53 {\nprometheus :9153 {\ntls a\nruntime_metrics x\nx\n}\n}",
		`Corefile:3: prometheus: tls: got 1 argument, usage: tls CERT KEY [CA]
Corefile:4: prometheus: runtime_metrics: want no argument, got 1
Corefile:5: prometheus: unknown option "x"`)
	wantErrors(t, ".:53 {\nprometheus :9153 {\ntls a b {\nclient_auth maybe\nclient_auth require_and_verify\nother\n}\n}\n}",
		`Corefile:3: prometheus: tls: reading the certificate and its key: open a: no such file or directory
Corefile:4: prometheus: tls: client_auth: want nocert or request or require or verify_if_given or require_and_verify, got "maybe"
Corefile:5: prometheus: tls: client_auth: require_and_verify needs a CA; write tls CERT KEY CA
Corefile:6: prometheus: tls: unknown option "other"`)
}

// All series exist before the first query, so that a reload does not look like a
// restart to Prometheus.
func TestPrometheusBeforeFirstQuery(t *testing.T) {
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0\nwhoami\n}")
	for _, name := range []string{
		`coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="whoami"} 1`,
		`coredns_dns_do_requests_total{server="dns://:53",view="",zone="."} 0`,
		`coredns_dns_request_duration_seconds_count{server="dns://:53",zone=".",view=""} 0`,
	} {
		if got := r.metrics(name); got != name+"\n" {
			t.Errorf("got %q, want %s", got, name)
		}
	}
}

// Queries outside all zones are refused and counted in the zone dropped.
func TestPrometheusUnserved(t *testing.T) {
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0\nwhoami\n}")
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	mux.Unserved = &dns.Chain{Server: "dns://:53", Zone: "dropped"}
	mux.Unserved.Observe(config.Find[*Prometheus](r.block)[0].Unserved(mux.Unserved))
	r.port.Swap(mux)
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	want := `coredns_dns_responses_total{server="dns://:53",zone="dropped",view="",rcode="REFUSED",plugin=""} 1` + "\n"
	if got := r.metrics("coredns_dns_responses_total"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `coredns_dns_requests_total{server="dns://:53",zone="dropped",view="",proto="udp",family="1",type="A"} 1` + "\n"
	if got := r.metrics("coredns_dns_requests_total"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := r.metrics(`coredns_plugin_enabled{server="dns://:53",zone="dropped"`); got != "" {
		t.Errorf("got %s, want no coredns_plugin_enabled for the zone dropped", got)
	}
}

// The metrics have the names of the Prometheus client for Go.
func TestGoMetrics(t *testing.T) {
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0 {\nruntime_metrics\n}\n}")
	runtime.GC()
	_, body := r.page("/metrics")
	for _, line := range []string{
		"go_info{version=", "go_threads ", "go_goroutines ", "go_memstats_alloc_bytes_total ", "go_gc_duration_seconds{quantile=\"0.5\"} ", "go_gc_duration_seconds_count ",
		"go_gc_cycles_total_gc_cycles_total ", "go_cpu_classes_gc_total_cpu_seconds_total ", "go_sched_latencies_seconds_bucket{le=\"+Inf\"} ",
		"go_godebug_non_default_behavior_", "process_max_fds ", "process_virtual_memory_bytes ", "process_network_receive_bytes_total ",
	} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/metrics: %s is missing", line)
		}
	}
	values := map[string]float64{}
	for line := range strings.Lines(body) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(line, "#") {
			values[name] = value
		}
	}
	if buckets := strings.Count(body, "\ngo_sched_latencies_seconds_bucket"); buckets > 70 {
		t.Errorf("go_sched_latencies_seconds: got %d buckets, want at most 70", buckets)
	}
	if values["process_virtual_memory_bytes"] < values["process_resident_memory_bytes"] || values["process_max_fds"] < values["process_open_fds"] {
		t.Errorf("got metrics\n%s\nwant resident memory below virtual memory and open_fds below max_fds", body)
	}
}

// With tls, /metrics is served only over HTTPS.
func TestPrometheusTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := plan(t, ".:53 {\nprometheus 127.0.0.1:0 {\ntls "+dir+"/cert "+dir+"/key {\nclient_auth request\n}\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	if err := b.Started(start); err != nil {
		t.Fatal(err)
	}
	b.Swapped()
	p := config.Find[*Prometheus](b)[0]
	if p.tls.Client != tls.RequestClientCert {
		t.Errorf("client_auth request: got %v, want %v", p.tls.Client, tls.RequestClientCert)
	}
	site, err := web.Open(start, p.addr, p.tls)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	reply, err := client.Get("https://" + site.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if got := reply.TLS.PeerCertificates[0].Raw; reply.StatusCode != 200 || !bytes.Equal(got, der) {
		t.Errorf("/metrics over HTTPS: got %d with the certificate %x, want 200 with %x", reply.StatusCode, got, der)
	}
	// health cannot share the address, since it has no TLS.
	both, err := plan(t, ".:53 {\nhealth 127.0.0.1:0\nprometheus 127.0.0.1:0 {\ntls "+dir+"/cert "+dir+"/key\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	next := config.NewStart(context.Background(), nil)
	defer next.Abort()
	want := "Corefile:3: prometheus: another directive of this Corefile serves 127.0.0.1:0 without TLS: set another address for one of them"
	if err := both.Started(next); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// The view label contains the name of the view.
func TestPrometheusView(t *testing.T) {
	r := run(t, ".:53 {\nview inside {\nexpr true\n}\nprometheus 127.0.0.1:0\nwhoami\n}")
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	want := `coredns_dns_responses_total{server="dns://:53",zone=".",view="inside",rcode="NOERROR",plugin="whoami"} 1` + "\n"
	if got := r.metrics("coredns_dns_responses_total"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := r.metrics("coredns_"); strings.Count(got, `view="inside"`) != strings.Count(got, `view="`) {
		t.Errorf("got series with another view label than inside:\n%s", got)
	}
}
