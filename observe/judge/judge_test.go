package judge

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// Each alert that one server can evaluate is a rule, and each alert of a rule exists.
func TestRulesAreAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/seamark/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"SeamarkDown", "SeamarkReplicasDiffer"} // which compare servers
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^- alert: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(want, m[1]) && !slices.Contains(others, m[1]) {
			want = append(want, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?sU)- alert: (\w+)\n.*runbook_url: (\S+)\n`).FindAllStringSubmatch(string(text), -1) {
		if m[2] != health.Runbook(m[1]) {
			t.Errorf("%s: got the runbook %s, want %s as in its condition", m[1], m[2], health.Runbook(m[1]))
		}
	}
	slices.Sort(want)
	if got := alerts(); !slices.Equal(got, want) {
		t.Errorf("got rules for %v, want %v", got, want)
	}
}

// A bench is a judge with metrics that a test sets, in a bubble of package synctest.
type bench struct {
	*Judge
	t     *testing.T
	log   chaintest.Log
	reg   metrics.Registry
	board health.Board
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t}
	b.Judge = New(&b.reg, &b.board, traffic.NewRecorder(nil), slog.New(slog.NewTextHandler(&b.log, nil)))
	t.Cleanup(b.Stop)
	return b
}

// wants checks the conditions: SEVERITY ALERT TEXT each, the worst first.
func (b *bench) wants(want ...string) {
	b.t.Helper()
	var got []string
	for _, c := range b.Conditions(time.Now()) {
		got = append(got, fmt.Sprintf("%s %s %s", c.Severity, c.Alert, c.Text))
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (b *bench) gauge(value float64, family string, labels ...string) {
	b.reg.TemporaryGauge(family, "help", func() float64 { return value }, labels...)
}

// record records n queries.
func (b *bench) record(n int, name, rcode string, client byte, took time.Duration) {
	for i := range n {
		text := name
		if strings.Contains(name, "%") {
			text = fmt.Sprintf(name, i)
		}
		w, err := wire.ParseName(text)
		if err != nil {
			b.t.Fatal(err)
		}
		b.recorder.Record(&traffic.Event{
			Time: time.Now(), Client: netip.AddrFrom4([4]byte{10, 0, 0, client}), RCode: rcode, Duration: took,
		}, []byte(w), nil, 0)
		time.Sleep(5 * time.Millisecond)
	}
}

func TestGaugesAreConditions(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(b *bench)
		want []string
	}{
		{"nothing", func(*bench) {}, nil},
		{"values within the bounds", func(b *bench) {
			b.gauge(1, "seamark_forward_upstream_up", "to", "10.0.0.1:53")
			b.gauge(12, "seamark_forward_waiting_queries", "to", "10.0.0.1:53")
			b.gauge(1, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
			b.gauge(250, "seamark_kubernetes_data_age_seconds", "resource", "services")
			b.gauge(float64(time.Now().Add(30*24*time.Hour).Unix()), "seamark_tls_certificate_expiry_seconds",
				"file", "cert.pem")
		}, nil},
		{"an upstream is down", func(b *bench) {
			b.gauge(0, "seamark_forward_upstream_up", "to", "10.0.0.1:53")
			b.gauge(1, "seamark_forward_upstream_up", "to", "10.0.0.2:53")
		}, []string{"warning SeamarkForwardHealthcheckFailures the upstream 10.0.0.1:53 is down"}},
		{"queries wait", func(b *bench) { b.gauge(101, "seamark_forward_waiting_queries", "to", "a:53") },
			[]string{"warning SeamarkForwardWaiting 101 queries wait for the upstream a:53"}},
		{"two kinds are old", func(b *bench) {
			b.gauge(400, "seamark_kubernetes_data_age_seconds", "resource", "services")
			b.gauge(301, "seamark_kubernetes_data_age_seconds", "resource", "endpointslices")
		}, []string{
			"warning SeamarkDataOld no endpointslices (for 5m1s) or services (for 6m40s) are received; the last known state is served",
		}},
		{"all kinds are equally old", func(b *bench) {
			for i, kind := range []string{"services", "endpointslices", "namespaces"} {
				b.gauge(400+float64(i), "seamark_kubernetes_data_age_seconds", "resource", kind)
			}
		}, []string{
			"warning SeamarkDataOld no endpointslices, namespaces or services are received; the last known state is served",
		}},
		{"not synced", func(b *bench) {
			b.gauge(0, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
			b.gauge(1, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "namespaces")
		}, []string{"critical SeamarkNotSynced not received since the start: services of cluster.local.; names that depend on them are SERVFAIL"}},
		{"never received", func(b *bench) {
			b.gauge(0, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
			b.gauge(400, "seamark_kubernetes_data_age_seconds", "resource", "services")
		}, []string{
			"critical SeamarkNotSynced not received since the start: services of cluster.local.; names that depend on them are SERVFAIL",
		}},
		{"an old snapshot", func(b *bench) {
			b.gauge(0, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
			b.gauge(1, "seamark_kubernetes_stale", "zones", "cluster.local.")
			b.gauge(400, "seamark_kubernetes_data_age_seconds", "resource", "services")
		}, []string{
			"warning SeamarkDataOld no services are received; the last known state is served",
			"warning SeamarkSnapshotServed the answers of cluster.local. are from a snapshot: not all objects have been received since the start",
		}},
		{"a snapshot", func(b *bench) { b.gauge(1, "seamark_kubernetes_stale", "zones", "cluster.local.") }, []string{
			"warning SeamarkSnapshotServed the answers of cluster.local. are from a snapshot: not all objects have been received since the start",
		}},
		{"certificates", func(b *bench) {
			b.gauge(float64(time.Now().Add(50*time.Hour).Unix()), "seamark_tls_certificate_expiry_seconds", "file",
				"a.pem")
			b.gauge(float64(time.Now().Add(-time.Hour).Unix()), "seamark_tls_certificate_expiry_seconds", "file",
				"b.pem")
		}, []string{
			"critical SeamarkCertificateExpires the certificate b.pem expired",
			"warning SeamarkCertificateExpires the certificate a.pem expires in 2 days",
		}},
		{"an invalid ConfigMap", func(b *bench) {
			b.gauge(0, "seamark_kubedns_config_valid", "source",
				"kube-system/kube-dns")
		},
			[]string{"warning  the ConfigMap kube-dns (kube-system/kube-dns) is invalid, and an earlier state serves"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				c.set(b)
				b.wants(c.want...)
			})
		})
	}
}

// Old data has been so since the oldest was received, not since it was found.
func TestOldDataBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.gauge(400, "seamark_kubernetes_data_age_seconds", "resource", "services")
		b.gauge(420, "seamark_kubernetes_data_age_seconds", "resource", "endpointslices")
		all := b.Conditions(time.Now())
		if len(all) != 1 || time.Since(all[0].Since) != 420*time.Second {
			t.Errorf("got %+v, want one condition of 7m", all)
		}
	})
}

// Lists and watches of several kinds that fail are one condition.
func TestWatchErrorsAreOneCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i, kind := range []string{"endpointslices", "namespaces", "services"} {
			b.reg.Counter("seamark_kubernetes_watch_errors_total", "help", "resource", kind).Add(uint64(10 + i))
		}
		b.wants("warning SeamarkWatchErrors lists and watches of namespaces (11) and services (12) failed in the last 15 minutes")
	})
}

// A condition by a counter begins with the first increase, lasts as long as the range of its
// alert, and is logged when it begins and ends.
func TestCountersAreConditionsForTheirRange(t *testing.T) {
	for _, c := range []struct {
		family string
		labels []string
		n      uint64
		lasts  time.Duration
		want   string
	}{
		{"coredns_panics_total", nil, 2, 10 * time.Minute,
			"critical SeamarkPanics a directive has a defect: 2 queries ended in a panic; the log has the stack"},
		{"coredns_forward_healthcheck_broken_total", nil, 3, 5 * time.Minute,
			"critical SeamarkForwardHealthcheckBroken every upstream of a forward was down for 3 queries of the last 5 minutes"},
		{"seamark_kubernetes_watch_errors_total", []string{"resource", "services"}, 11, 15 * time.Minute,
			"warning SeamarkWatchErrors lists and watches of services (11) failed in the last 15 minutes"},
		{"seamark_kubernetes_comparisons_total", []string{"resource", "services", "result", "different"}, 1,
			30 * time.Minute,
			"warning SeamarkMissedEvents watches of services have missed changes, and they were listed again"},
		{"seamark_memory_tight_total", nil, 100, 5 * time.Minute,
			"warning  memory is tight: 100 collections in the last minutes had almost nothing to free"},
		{"seamark_memory_refused_total", []string{"part", "zones"}, 1, 5 * time.Minute,
			"warning  no memory for more zones: refused 1 times in the last minutes"},
	} {
		t.Run(c.family, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				counter := b.reg.Counter(c.family, "help", c.labels...)
				time.Sleep(time.Hour)
				b.wants()
				counter.Add(c.n)
				b.wants(c.want)
				began := time.Now()
				time.Sleep(c.lasts - 2*interval)
				b.wants(c.want)
				if at := b.Conditions(time.Now())[0].Since; at.Sub(began) > time.Second {
					t.Errorf("got a beginning %v late", at.Sub(began))
				}
				time.Sleep(3 * interval)
				b.wants()
				synctest.Wait()
				text := c.want[strings.Index(c.want, " ")+1:]
				_, text, _ = strings.Cut(text, " ")
				if log := b.log.String(); strings.Count(log, "health: "+text) != 1 ||
					!strings.Contains(log, "health: Over: ") {
					t.Errorf("got the log\n%s\nwant the condition once, and its end", log)
				}
			})
		})
	}
}

// While every upstream is down, the first condition names them and the last error, before the SERVFAIL that
// clients get, and has no row for each of them; once one is up, it is a warning about the last minutes. One
// that is down has no other condition of its failures.
func TestEveryUpstreamDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		failedAt := time.Now().Add(500 * time.Millisecond) // when the queries below have been recorded
		b.board.SetFailures(t, func() []health.Failure {
			return []health.Failure{{Object: "a:53", Error: "connection refused", At: failedAt}}
		})
		up := map[string]*atomic.Bool{"a:53": {}, "b:53": {}}
		for to, isUp := range up {
			value := func() float64 {
				if isUp.Load() {
					return 1
				}
				return 0
			}
			b.reg.TemporaryGauge("seamark_forward_upstream_up", "help", value, "to", to)
			b.reg.Counter("coredns_forward_requests_total", "help", "to", to).Add(100)
			b.reg.Counter("seamark_forward_failures_total", "help", "to", to).Add(90)
		}
		b.reg.Counter("coredns_forward_healthcheck_broken_total", "help").Add(50)
		b.record(60, "www.example.org.", "NOERROR", 1, 0)
		b.record(40, "www.example.org.", "SERVFAIL", 1, 0)

		b.wants(
			"critical SeamarkForwardHealthcheckBroken every upstream is down: a:53, b:53; last error: connection refused",
			"critical SeamarkErrorsHigh 40 % of the replies of the last minute are SERVFAIL; most of the last minutes are for www.example.org.",
		)
		if c := b.Conditions(time.Now())[0]; c.Lost != 0.5 || c.Next != "seamark query example.com --server a:53" {
			t.Errorf("got %+v, want half of the queries lost, and a query to the upstream", c)
		}

		up["b:53"].Store(true)
		time.Sleep(2 * time.Minute)
		b.record(900, "www.example.org.", "NOERROR", 1, 0)
		b.wants(
			"critical SeamarkForwardHealthcheckBroken every upstream of a forward was down for 50 queries of the last 5 minutes",
			"warning SeamarkForwardHealthcheckFailures the upstream a:53 is down; last error: connection refused, 2m5s ago",
			"warning SeamarkForwardTimeouts the upstream b:53 does not answer 90 % of the queries",
		)
		up["a:53"].Store(true)
		b.wants(
			"warning SeamarkForwardHealthcheckBroken every upstream of a forward was down for 50 queries of the last 5 minutes; all are up again",
			"warning SeamarkForwardTimeouts the upstream b:53 does not answer 90 % of the queries",
			"warning SeamarkForwardTimeouts the upstream a:53 does not answer 90 % of the queries; last error: connection refused, 2m5s ago",
		)
	})
}

// A condition by which more than 3 % of the queries are lost is critical, also if its alert is a warning.
func TestLostQueriesAreCritical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		shed := b.reg.Counter("seamark_transport_shed_queries_total", "help", "reason", "client")
		time.Sleep(time.Minute)
		b.record(12000, "www.example.org.", "NOERROR", 1, 0)
		full := b.reg.Counter("seamark_transport_shed_queries_total", "help", "reason", "full")
		shed.Add(240)
		b.wants("warning SeamarkQueriesShed the kernel drops 2.0 queries a second of overload: clients above their share (2.0)")
		full.Add(2400)
		b.wants("critical SeamarkQueriesShed the kernel drops 22 queries a second of overload: clients above their share (2.0), full socket buffers (20)")
	})
}

// A part of the memory that is full when it works as it should is no condition.
func TestFullMemoryIsCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, part := range []string{"cache", "records", "replies", "tls"} {
			b.reg.Counter("seamark_memory_refused_total", "help", "part", part).Add(7)
		}
		b.wants("warning  no memory for more connections over TLS: refused 7 times in the last minutes")
	})
}

// Upstreams that fail are named, with the share of their queries; the others are not.
func TestUpstreamsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, to := range []string{"good:53", "silent:53"} {
			b.reg.Counter("coredns_forward_requests_total", "help", "to", to).Add(100)
		}
		b.reg.Counter("seamark_forward_failures_total", "help", "to", "silent:53").Add(50)
		b.reg.Counter("seamark_forward_failures_total", "help", "to", "good:53").Add(4)
		for to, took := range map[string]time.Duration{"good:53": 10 * time.Millisecond, "slow:53": 6 * time.Second} {
			h := b.reg.Histogram("coredns_proxy_request_duration_seconds", "help", 1e-9, []float64{0.1, 1, 8},
				"proxy_name", "forward", "to", to, "rcode", "NOERROR")
			for range 100 {
				h.Add(uint64(took), 1)
			}
		}
		failing := b.reg.Histogram("coredns_proxy_request_duration_seconds", "help", 1e-9, []float64{0.1, 1, 8},
			"proxy_name", "forward", "to", "good:53", "rcode", "SERVFAIL")
		for range 2 {
			failing.Add(uint64(10*time.Millisecond), 1)
		}
		b.wants(
			"critical SeamarkForwardLatencyHigh the upstream slow:53 is slow: the 99th percentile is 8s",
			"warning SeamarkForwardTimeouts the upstream silent:53 does not answer 50 % of the queries",
		)
	})
}

// What a part of the server reports itself takes the place of what its metrics show.
func TestBoardTakesPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.gauge(0, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
		b.board.Set(t, "sync", health.Condition{
			Severity: health.Warning, Alert: "SeamarkNotSynced", Text: "refused",
		})
		time.Sleep(time.Hour)
		b.wants("warning SeamarkNotSynced refused")
		if since := time.Since(b.Conditions(time.Now())[0].Since); since != time.Hour {
			t.Errorf("got a condition of %v, want 1h", since)
		}
		b.board.Clear(t, "sync")
		if all := b.Conditions(time.Now()); len(all) != 1 || all[0].Severity != health.Critical {
			t.Errorf("afterwards: got %+v, want the one of the metrics", all)
		}
	})
}

// A storm of random names is a condition with its parent and clients, beside healthy queries; the
// same number of queries for few names is none.
func TestStormIsCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.record(3000, "www.example.org.", "NOERROR", 1, 0)
		b.record(3000, "missing.example.org.", "NXDOMAIN", 1, 0)
		b.wants("note  50 % of the queries are for names that do not exist, most for missing.example.org.")
		b.record(6000, "x%d.shop.svc.cluster.local.", "NXDOMAIN", 2, 0)
		all := b.Conditions(time.Now())
		if len(all) != 1 || all[0].Object != "shop.svc.cluster.local." ||
			all[0].Next != "seamark tail --client 10.0.0.2" {
			t.Fatalf("got %+v, want a storm below shop.svc.cluster.local.", all)
		}
		m := regexp.MustCompile(`^50 % of the queries are for names that do not exist: about (\d),(\d)00 names below .*, from one client$`).
			FindStringSubmatch(all[0].Text)
		if m == nil {
			t.Fatalf("got %q", all[0].Text)
		}
		var thousands, hundreds float64
		_, _ = fmt.Sscan(m[1]+" "+m[2], &thousands, &hundreds)
		if n := thousands*1000 + hundreds*100; math.Abs(n-6000) > 1200 {
			t.Errorf("got about %v names, want 6000", n)
		}

		time.Sleep(2 * time.Minute)
		b.record(100, "www.example.org.", "NOERROR", 1, 0)
		b.wants() // the storm has ended
	})
}

// The client of a storm is the one that most of its queries are from, not the last one with a name below the
// same parent.
func TestStormNamesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.record(1, "wbe.shop.example.", "NXDOMAIN", 7, 0)
		b.record(6000, "x%d.shop.example.", "NXDOMAIN", 2, 0)
		b.record(40, "wbe.shop.example.", "NXDOMAIN", 7, 0)
		if all := b.Conditions(time.Now()); len(all) != 1 || all[0].Next != "seamark tail --client 10.0.0.2" {
			t.Errorf("got %+v, want the storm of 10.0.0.2", all)
		}
	})
}

// A storm ends when names below its parent are no longer queried, although searches of pods and another name that
// does not exist are more than a tenth of the queries.
func TestStormEndsBesideSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.record(6000, "x%d.a.example.", "NXDOMAIN", 2, 0)
		if all := b.Conditions(time.Now()); len(all) != 1 || all[0].Object != "a.example." {
			t.Fatalf("got %+v, want a storm below a.example.", all)
		}

		time.Sleep(time.Minute)
		b.record(600, "www.example.org.", "NOERROR", 1, 0)
		b.record(300, "missing.b.example.", "NXDOMAIN", 1, 0)
		b.search(250)
		b.wants()

		b.record(6000, "y%d.b.example.", "NXDOMAIN", 2, 0)
		if all := b.Conditions(time.Now()); len(all) != 1 || all[0].Object != "b.example." {
			t.Errorf("got %+v, want the storm below b.example. alone", all)
		}
	})
}

// Replies of the last minute: few failures are no share, and many are a warning or critical.
func TestRepliesAreConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.record(4, "a.example.", "SERVFAIL", 1, 0)
		b.wants()
		b.record(396, "b.example.", "NOERROR", 1, 0)
		b.record(4, "a.example.", "SERVFAIL", 1, 0)
		b.wants("warning SeamarkErrorsHigh 2.0 % of the replies of the last minute are SERVFAIL; most of the last minutes are for a.example.")
		b.record(100, "a.example.", "SERVFAIL", 1, 6*time.Second)
		b.wants(
			"critical SeamarkErrorsHigh 21 % of the replies of the last minute are SERVFAIL; most of the last minutes are for a.example.",
			"critical SeamarkLatencyHigh one query in a hundred takes longer than 4.2s",
		)
		time.Sleep(2 * time.Minute)
		b.wants()
	})
}

// A latency is critical from the bound of its alert on, and not by a single slow query.
func TestLatencyBelowBoundIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.record(200, "a.example.", "NOERROR", 1, 3*time.Second)
		b.wants()
		time.Sleep(2 * time.Minute)
		b.record(50, "a.example.", "NOERROR", 1, 20*time.Second)
		b.wants()

		h := b.reg.Histogram("coredns_proxy_request_duration_seconds", "help", 1, []float64{1, 4, 16},
			"proxy_name", "forward", "to", "slow:53", "rcode", "NOERROR")
		for range 1000 {
			h.Add(3, 1)
		}
		b.wants()
		time.Sleep(time.Hour)
		for range 1000 {
			h.Add(10, 1)
		}
		b.wants("critical SeamarkForwardLatencyHigh the upstream slow:53 is slow: the 99th percentile is 16s")
	})
}

// Upstreams over gRPC have other metrics of queries.
func TestUpstreamOverGRPCHasShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.reg.Counter("coredns_grpc_requests_total", "help", "to", "a:443").Add(1000)
		failures := b.reg.Counter("seamark_forward_failures_total", "help", "to", "a:443")
		failures.Add(6)
		b.wants()
		failures.Add(94)
		b.wants("warning SeamarkForwardTimeouts the upstream a:443 does not answer 10 % of the queries")
	})
}

// search records searches of one pod for outside names.
func (b *bench) search(n int) {
	for i := range n {
		w, err := wire.ParseName(fmt.Sprintf("n%d.com.shop.svc.cluster.local.", i))
		if err != nil {
			b.t.Fatal(err)
		}
		b.recorder.Record(&traffic.Event{Time: time.Now(), Client: netip.MustParseAddr("10.0.0.1"), RCode: "NXDOMAIN"},
			[]byte(w), []byte("shop"), wire.Name(w).Labels())
		time.Sleep(5 * time.Millisecond)
	}
}

// The searches of one pod for many outside names are no storm.
func TestSearchesAreNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.search(4000)
		b.wants("note  100 % of the queries are searches of pods that cannot succeed")
	})
}

// A condition that becomes worse is logged again. A certificate that has expired did so when it says.
func TestWorseConditionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.gauge(float64(time.Now().Add(time.Hour).Unix()), "seamark_tls_certificate_expiry_seconds", "file", "a.pem")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		log := b.log.String()
		if !strings.Contains(log, "health: the certificate a.pem expires in ") ||
			!strings.Contains(log, "health: the certificate a.pem expired\"") || strings.Contains(log, "Over: ") {
			t.Errorf("got the log\n%s\nwant both, and no end", log)
		}
		if since := time.Since(b.Conditions(time.Now())[0].Since); since != time.Hour {
			t.Errorf("got a condition of %v, want 1h", since)
		}
	})
}

// A condition of which a note is left is logged as over, and once.
func TestConditionThatBecomesNoteIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const to = "192.0.2.1:53"
		up := new(atomic.Int64)
		b.reg.TemporaryGauge("seamark_forward_upstream_up", "", func() float64 { return float64(up.Load()) }, "to", to)
		b.gauge(1, "seamark_forward_upstream_up", "to", "192.0.2.2:53")
		b.reg.Counter("coredns_proxy_healthcheck_failures_total", "", "to", to).Add(1)
		time.Sleep(time.Minute)
		up.Store(1)
		time.Sleep(time.Minute)
		b.wants("note SeamarkForwardHealthcheckFailures the upstream " + to + " failed its health check in the last minutes (1); it counts as up")
		time.Sleep(time.Hour)
		synctest.Wait()
		if log := b.log.String(); strings.Count(log, "health: the upstream ") != 1 || strings.Count(log, "health: Over: the upstream ") != 1 {
			t.Errorf("got the log\n%s\nwant a beginning and an end", log)
		}
	})
}

// A directive that is not ready is logged once, and its age does not depend on who asks for it.
func TestUnreadyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.SetUnready(func() []health.Condition {
			return []health.Condition{{Severity: health.Critical, Object: "etcd", Text: "not ready: etcd"}}
		})
		b.wants("critical  not ready: etcd")
		time.Sleep(time.Hour)
		synctest.Wait()
		if since := time.Since(b.Conditions(time.Now())[0].Since); since != time.Hour ||
			strings.Count(b.log.String(), "not ready: etcd") != 1 {
			t.Errorf("got a condition of %v, want 1h; and the log\n%s", since, b.log.String())
		}
	})
}

// Series that end, as of upstreams that reloads remove, do not stay for ever, and those that last keep
// their values.
func TestJudgeForgetsEndedSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lasting := b.reg.Counter("coredns_panics_total", "")
		for i := range 5000 {
			lasting.Add(1)
			remove := b.reg.TemporaryGauge("seamark_forward_upstream_up", "", func() float64 { return 1 }, "to", fmt.Sprint(i))
			b.sample(time.Now())
			remove()
			if n := len(b.names); n > 200 {
				t.Fatalf("after %d ended series: got %d names, want a bounded number", i, n)
			}
			time.Sleep(time.Millisecond)
		}

		e := evidence{now: time.Now(), values: b.metrics.Values(isUsed), judge: b.Judge}
		if got := e.increase("coredns_panics_total", time.Second); len(got) != 1 || got[0].value != 999 {
			t.Errorf("got %v of a lasting counter in the last second, want 999", got)
		}
	})
}

// Conditions about upstreams, certificates and the cluster's data have a step to take at once.
func TestNextSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.gauge(0, "seamark_forward_upstream_up", "to", "10.0.0.1:53")
		b.gauge(float64(time.Now().Add(-time.Hour).Unix()), "seamark_tls_certificate_expiry_seconds", "file", "a.pem")
		b.gauge(0, "seamark_kubernetes_synced", "zones", "cluster.local.", "resource", "services")
		b.gauge(400, "seamark_kubernetes_data_age_seconds", "resource", "endpointslices")
		b.gauge(1, "seamark_kubernetes_stale", "zones", "other.local.")

		want := map[string]string{
			"SeamarkForwardHealthcheckFailures": "seamark query example.com --server 10.0.0.1:53",
			"SeamarkCertificateExpires":         "replace the file, which the server then reads again",
			"SeamarkNotSynced":                  "seamark doctor",
			"SeamarkDataOld":                    "seamark doctor",
			"SeamarkSnapshotServed":             "seamark doctor",
		}
		got := map[string]string{}
		for _, c := range b.Conditions(time.Now()) {
			got[c.Alert] = c.Remedy()
		}
		if !maps.Equal(got, want) {
			t.Errorf("got the next steps %q, want %q", got, want)
		}
	})
}

// alerts returns the alerts that are rules, sorted.
func alerts() []string {
	names := map[string]bool{}
	for _, r := range rules {
		if r.alert != "" {
			names[r.alert] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
