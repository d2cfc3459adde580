package handler

import (
	"errors"
	"strings"
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestPrometheus(t *testing.T) {
	h := &says{verdict: dns.Next}
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0\nerrors\nwhoami\n}", h)
	r.ask(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	r.ask(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	r.ask(packet(t, "example.org", wire.TypeNAPTR), dns.TCP, "[fd00::1]:9")
	h.verdict, h.code, h.err = dns.Done, wire.ServFail, errors.New("no")
	r.ask(packet(t, "example.org", wire.TypePTR), dns.UDP, client)
	h.verdict = dns.Drop
	r.ask(packet(t, "example.org", wire.TypePTR), dns.UDP, client)
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
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	code, body := r.page("/metrics")
	if code != 200 {
		t.Errorf("/metrics: got %d", code)
	}
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_start_time_seconds ", "coredns_dns_requests_total{"} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
}

func TestPrometheusWrong(t *testing.T) {
	wrong(t, ".:53 {\nprometheus :9153 {\ntls a b\nruntime_metrics\nx\n}\n}",
		`Corefile:3: prometheus: tls: this server does not have that option of CoreDNS's
Corefile:4: prometheus: runtime_metrics: this server does not have that option of CoreDNS's
Corefile:5: prometheus: unknown option "x"`)
}
