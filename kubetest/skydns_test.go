package kubetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/test/chaintest"
)

// A dnsStore is an etcd cluster of three members with a writer that no fault
// between the members and the server affects.
type dnsStore struct {
	*testing.T
	*EtcdCluster
	writer *clientv3.Client
}

func newDNSStore(t *testing.T, o EtcdOptions) *dnsStore {
	t.Helper()
	s := &dnsStore{T: t, EtcdCluster: startEtcdCluster(t, o)}
	s.writer = etcdClient(t, s.Config(), s.Direct()...)
	return s
}

// updateEndpoints points the writer to the members that run.
func (s *dnsStore) updateEndpoints() { s.writer.SetEndpoints(s.Direct()...) }

// keyOfName returns the key of a name.
func keyOfName(prefix, name string) string {
	labels := strings.Split(name, ".")
	key := prefix
	for i := len(labels) - 1; i >= 0; i-- {
		key += "/" + labels[i]
	}
	return key
}

// put writes a name's message.
func (s *dnsStore) put(name, value string, options ...clientv3.OpOption) {
	s.Helper()
	s.set(keyOfName("/skydns", name), value, options...)
}

func (s *dnsStore) set(key, value string, options ...clientv3.OpOption) {
	s.Helper()
	s.retry("putting "+key, func(ctx context.Context) error { _, err := s.writer.Put(ctx, key, value, options...); return err })
}

func (s *dnsStore) remove(name string) {
	s.Helper()
	key := keyOfName("/skydns", name)
	s.retry("deleting "+key, func(ctx context.Context) error { _, err := s.writer.Delete(ctx, key); return err })
}

// removeBelow deletes the keys below a name.
func (s *dnsStore) removeBelow(name string) {
	s.Helper()
	key := keyOfName("/skydns", name) + "/"
	s.retry("deleting "+key, func(ctx context.Context) error {
		_, err := s.writer.Delete(ctx, key, clientv3.WithPrefix())
		return err
	})
}

// retry repeats an operation until the cluster accepts it.
func (s *dnsStore) retry(what string, do func(context.Context) error) {
	s.Helper()
	var err error
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: %v", what, err)
		}
	}
}

// putStableNames writes the names of stableNames.
func (s *dnsStore) putStableNames() {
	s.Helper()
	for i := range 20 {
		s.put(fmt.Sprintf("stays%d.skydns.test", i), fmt.Sprintf(`{"host":"10.0.0.%d"}`, i+1))
	}
}

// stableNames returns queries for names that do not change.
func stableNames() (all []lookup) {
	for i := range 20 {
		all = append(all, lookupA(fmt.Sprintf("stays%d.skydns.test", i), fmt.Sprintf("NOERROR 10.0.0.%d", i+1)))
	}
	return append(all, lookupA("never.skydns.test", "NXDOMAIN"))
}

// etcdCorefile returns a Corefile with the etcd directive for these endpoints.
func etcdCorefile(endpoints []string, options ...string) string {
	lines := append([]string{"endpoint " + strings.Join(endpoints, " ")}, options...)
	return ". {\n errors\n ready $READY\n etcd skydns.test in-addr.arpa {\n  " + strings.Join(lines, "\n  ") + "\n }\n}\n"
}

// isReadyNow returns the response of the directive ready.
func (d *daemon) isReadyNow() bool {
	resp, err := http.Get("http://" + d.ready + "/ready")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// ttl returns the TTL of an answer's first record.
func (d *daemon) ttl(q lookup) uint32 {
	d.Helper()
	reply := must(exchangeUDP(q.message(), d.at))(d.T)
	if len(reply.Answer) == 0 {
		d.Fatalf("%s: got %s, want an answer", q, reply)
	}
	return reply.Answer[0].Header().Ttl
}

// Keys are created, changed and deleted, one by one, in transactions and as whole
// trees, and every kind of answer occurs.
func TestEtcdChanges(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	s.put("x.web.skydns.test", `{"host":"10.1.0.1","port":80}`)
	s.put("y.web.skydns.test", `{"host":"2001:db8::1","port":81,"priority":20}`)
	s.put("text.skydns.test", `{"text":"hello"}`)
	s.put("alias.skydns.test", `{"host":"stays0.skydns.test"}`)
	s.put("mail.skydns.test", `{"host":"stays1.skydns.test","mail":true,"priority":5}`)
	s.put("1.ns.dns.skydns.test", `{"host":"10.0.9.1"}`)
	s.put("1.0.0.10.in-addr.arpa", `{"host":"stays0.skydns.test"}`)
	s.set("/skydns/test/skydns/deep", `{"host":"10.2.0.1"}`)
	s.set("/skydns/test/skydns/deep/er", `{"host":"10.2.0.2"}`)
	s.set("/skydns/test/skydns/deeper", `{"host":"10.2.0.3"}`)
	s.set("/skydnsx/test/skydns/sibling", `{"host":"10.3.0.1"}`)
	s.set("/skydns", `{"host":"10.3.0.2"}`)
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(stableNames()...)
	d.check(
		lookupA("web.skydns.test", "NOERROR 10.1.0.1"), lookupAAAA("web.skydns.test", "NOERROR 2001:db8::1"),
		lookupSRV("web.skydns.test", "NOERROR 10 100 80 x.web.skydns.test. 20 100 81 y.web.skydns.test."),
		lookup{"text.skydns.test", dns.TypeTXT, `NOERROR "hello"`},
		lookupA("alias.skydns.test", "NOERROR 10.0.0.1 stays0.skydns.test."),
		lookup{"mail.skydns.test", dns.TypeMX, "NOERROR 5 stays1.skydns.test."},
		lookup{"skydns.test", dns.TypeNS, "NOERROR 1.ns.dns.skydns.test."},
		lookupPTR("1.0.0.10.in-addr.arpa", "NOERROR stays0.skydns.test."),
		lookupA("deep.skydns.test", "NOERROR 10.2.0.1 10.2.0.2"), lookupA("er.deep.skydns.test", "NOERROR 10.2.0.2"), lookupA("deeper.skydns.test", "NOERROR 10.2.0.3"),
		lookupA("sibling.skydns.test", "NXDOMAIN"), lookupA("text.skydns.test", "NOERROR"),
	)
	if !d.isReadyNow() {
		t.Error("ready: got false after the keys were listed, want true")
	}
	load := d.startLoad(stableNames()...)
	var l latencies
	for i := range 30 {
		want := fmt.Sprintf("10.4.0.%d", i)
		s.put("comes.skydns.test", `{"host":"`+want+`"}`)
		l = append(l, d.awaitChange("a put", lookupA("comes.skydns.test", "NOERROR "+want)))
		if i%10 == 9 {
			s.remove("comes.skydns.test")
			l = append(l, d.awaitChange("a deletion", lookupA("comes.skydns.test", "NXDOMAIN")))
		}
	}
	t.Log(l)
	// One transaction puts and deletes, as those of kube2sky do.
	s.put("a.txn.skydns.test", `{"host":"10.5.0.1"}`)
	d.awaitChange("a put", lookupA("txn.skydns.test", "NOERROR 10.5.0.1"))
	s.retry("a transaction", func(ctx context.Context) error {
		_, err := s.writer.Txn(ctx).Then(
			clientv3.OpPut(keyOfName("/skydns", "b.txn.skydns.test"), `{"host":"10.5.0.2"}`), clientv3.OpDelete(keyOfName("/skydns", "a.txn.skydns.test")),
			clientv3.OpPut(keyOfName("/skydns", "c.txn.skydns.test"), `{"host":"10.5.0.3"}`)).Commit()
		return err
	})
	d.await(lookupA("txn.skydns.test", "NOERROR 10.5.0.2 10.5.0.3"))
	s.removeBelow("txn.skydns.test")
	d.awaitChange("the deletion of a tree", lookupA("txn.skydns.test", "NXDOMAIN"))

	// An invalid message is logged once and affects no other.
	for name, value := range map[string]string{
		"json.bad.skydns.test": `{"host":`, "host.bad.skydns.test": `{"host":"10.0.0.1:80"}`, "port.bad.skydns.test": `{"host":"10.0.0.1","port":70000}`,
		"good.bad.skydns.test": `{"host":"10.6.0.1","found":true}`, "empty.bad.skydns.test": `{}`, "odd *\"{}é.bad.skydns.test": `{"host":"10.6.0.2"}`,
	} {
		s.put(name, value)
	}
	s.put("json.bad.skydns.test", `{"host":`)
	d.await(lookupA("bad.skydns.test", "NOERROR 10.6.0.1 10.6.0.2"), lookupA("json.bad.skydns.test", "NOERROR"), lookupA("empty.bad.skydns.test", "NOERROR"))
	for _, name := range []string{"json", "host", "port"} {
		if n := d.logs("Invalid value in etcd", "/skydns/test/skydns/bad/"+name); n != 1 {
			t.Errorf("log lines about the invalid message of %s: got %d, want 1", name, n)
		}
	}
	// Without changes, etcd confirms the state twice.
	for range 2 {
		last := 0.0
		chaintest.Eventually(t, "a progress notification", func() bool {
			before := last
			last = d.metric(`seamark_etcd_data_age_seconds{path="/skydns/"}`)
			return before > 2 && last < before
		})
	}
	load.stop()
	if n := d.logs("etcd failed, retrying"); n > 0 {
		t.Errorf("warnings that etcd failed: got %d, want 0", n)
	}
	if n := d.metric(`seamark_etcd_lists_total{path="/skydns/"}`); n != 1 {
		t.Errorf("lists: got %v, want 1", n)
	}
	if n, keys := d.metric(`seamark_etcd_keys{path="/skydns/"}`), 20+7+3+6; int(n) != keys {
		t.Errorf("keys: got %v, want %d", n, keys)
	}
	if age := d.metric(`seamark_etcd_data_age_seconds{path="/skydns/"}`); age < 0 || age > 10 {
		t.Errorf("age of the data: got %v seconds, want 0 to 10", age)
	}
}

// A key with a lease has the remaining time as its TTL, within the directive's
// bounds, and is deleted when the lease ends.
func TestEtcdLeases(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	grant := func(seconds int64) clientv3.LeaseID {
		return must(s.writer.Grant(t.Context(), seconds))(t).ID
	}
	s.put("short.skydns.test", `{"host":"10.0.0.1"}`, clientv3.WithLease(grant(1000)))
	s.put("own.skydns.test", `{"host":"10.0.0.1","ttl":7}`, clientv3.WithLease(grant(1000)))
	s.put("long.skydns.test", `{"host":"10.0.0.1"}`, clientv3.WithLease(grant(100000)))
	brief := grant(3)
	s.put("brief.skydns.test", `{"host":"10.0.0.2"}`, clientv3.WithLease(brief))
	s.put("none.skydns.test", `{"host":"10.0.0.1"}`)
	for _, watch := range []string{"on", "off"} {
		d := serve(t, etcdCorefile(s.Endpoints(), "watch "+watch, "min-lease-ttl 5s", "max-lease-ttl 2000"))
		d.await(lookupA("short.skydns.test", "NOERROR 10.0.0.1"))
		chaintest.Eventually(t, "the TTL of the lease", func() bool { return d.ttl(lookupA("short.skydns.test", "")) > 900 })
		before := d.ttl(lookupA("short.skydns.test", ""))
		chaintest.Eventually(t, "a decreasing TTL", func() bool { return d.ttl(lookupA("short.skydns.test", "")) < before })
		chaintest.Eventually(t, "all leases to be known", func() bool { return d.ttl(lookupA("long.skydns.test", "")) == 2000 })
		for name, want := range map[string]uint32{"own": 7, "none": 300, "long": 2000} {
			if got := d.ttl(lookupA(name+".skydns.test", "")); got != want {
				t.Errorf("watch %s: TTL of %s: got %d, want %d", watch, name, got, want)
			}
		}
		if watch == "on" {
			// A key whose lease is kept alive stays. Its TTL is the minimum, which
			// exceeds the remaining time.
			for range 3 {
				_ = must(s.writer.KeepAliveOnce(t.Context(), brief))(t)
				if got := d.ttl(lookupA("brief.skydns.test", "")); got != 5 {
					t.Errorf("TTL of a lease with less time than the minimum: got %d, want 5", got)
				}
				chaintest.Eventually(t, "a lease about to expire", func() bool { return must(s.writer.TimeToLive(t.Context(), brief))(t).TTL <= 1 })
			}
			d.check(lookupA("brief.skydns.test", "NOERROR 10.0.0.2"))
			d.await(lookupA("brief.skydns.test", "NXDOMAIN"))
			// A key gets a lease, another lease, and none.
			s.put("late.skydns.test", `{"host":"10.0.0.3"}`, clientv3.WithLease(grant(500)))
			d.await(lookupA("late.skydns.test", "NOERROR 10.0.0.3"))
			chaintest.Eventually(t, "the TTL of a new lease", func() bool { ttl := d.ttl(lookupA("late.skydns.test", "")); return ttl > 400 && ttl <= 500 })
			s.put("late.skydns.test", `{"host":"10.0.0.3"}`, clientv3.WithLease(grant(1500)))
			chaintest.Eventually(t, "the TTL of another lease", func() bool { return d.ttl(lookupA("late.skydns.test", "")) > 1400 })
			s.put("late.skydns.test", `{"host":"10.0.0.3"}`)
			chaintest.Eventually(t, "the TTL without a lease", func() bool { return d.ttl(lookupA("late.skydns.test", "")) == 300 })
		}
	}
}
