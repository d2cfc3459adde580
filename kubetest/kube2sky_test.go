package kubetest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/test/chaintest"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// shopRecords lists the keys that kube2sky writes for clusterWriter.shop.
var shopRecords = []string{
	"svc/shop/web/ 10.0.0.1",
	"svc/shop/web/ fd00::1",
	"svc/shop/web/_tcp/_http/#10.0.0.1 web.shop.svc.cluster.local. 80",
	"svc/shop/db/db-0 10.1.0.3",
	"svc/shop/db/_tcp/_http/db-0 db-0.db.shop.svc.cluster.local. 8080",
	"svc/shop/bank/ web.shop.svc.cluster.local.",
	"arpa/in-addr/10/0/0/1 web.shop.svc.cluster.local.",
	"arpa/ip6/f/d/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/1 web.shop.svc.cluster.local.",
	"arpa/in-addr/10/1/0/3 db-0.db.shop.svc.cluster.local.",
}

// Every kind of key is written and changed. After an interruption, unwanted keys
// of ours are deleted and keys of other writers are kept.
func TestKube2sky(t *testing.T) {
	t.Parallel()
	srv, s := start(t), startKeyReader(t)
	w := writer(t, srv)
	w.shop()
	b := startKube2sky(t, srv, s.at)
	b.ready()
	s.awaitKeys(keysOfRecords(shopRecords...))
	if got := s.keys(treePrefix)["local/cluster/svc/shop/web/f488b1a2"]; got != `{"host":"10.0.0.1","priority":10,"weight":10,"ttl":30}` {
		t.Errorf("value of web's address: got %s, want the message of 10.0.0.1 with priority 10, weight 10, TTL 30", got)
	}
	if b.number("seamark_kube2sky_keys") != float64(len(shopRecords)) || b.number("seamark_kube2sky_pending") != 0 || !b.leads() {
		_, text := b.page("/metrics")
		t.Errorf("got metrics\n%s\nwant %d keys, none pending, and a leader", text, len(shopRecords))
	}

	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	w.pod("shop", "p", "1.2.3.4")
	edit(t, slices, "db-1", func(e *discoveryv1.EndpointSlice) {
		e.Endpoints[0].Addresses = []string{"10.1.0.4"}
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.5"}, Hostname: new("db-1")},
			discoveryv1.Endpoint{Addresses: []string{"10.1.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}})
	})
	edit(t, services, "bank", func(e *corev1.Service) { e.Spec.ExternalName = "bank.example.com" })
	edit(t, services, "web", func(e *corev1.Service) { e.Spec.Ports[0].Port = 81 })
	changed := keysOfRecords("svc/shop/web/ 10.0.0.1", "svc/shop/web/ fd00::1", "svc/shop/web/_tcp/_http/#10.0.0.1 web.shop.svc.cluster.local. 81",
		"svc/shop/db/db-0 10.1.0.4", "svc/shop/db/_tcp/_http/db-0 db-0.db.shop.svc.cluster.local. 8080",
		"svc/shop/db/db-1 10.1.0.5", "svc/shop/db/_tcp/_http/db-1 db-1.db.shop.svc.cluster.local. 8080",
		"svc/shop/bank/ bank.example.com.", "pod/shop/1-2-3-4/ 1.2.3.4",
		shopRecords[6], shopRecords[7], "arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.", "arpa/in-addr/10/1/0/5 db-1.db.shop.svc.cluster.local.")
	s.awaitKeys(changed)
	b.terminate()
	s.awaitKeys(changed) // The keys stay when kube2sky exits.

	// Meanwhile objects are deleted, and another writer adds keys.
	remove(t, services, "web")
	remove(t, w.CoreV1().Pods("shop"), "p")
	add(t, services, service("new", "10.0.0.7"))
	add(t, services, service("same", "10.0.0.8"))
	s.put("local/cluster/svc/shop/web/custom", hostMessage("192.0.2.1")) // These are beside our keys.
	s.put("local/cluster/svc/shop/bank/"+fnvHash(hostMessage("bank.example.com.")), hostMessage("192.0.2.2"))
	s.put("arpa/in-addr/10/0/0/7", hostMessage("other.example.com."))                               // This is the key of one of ours.
	s.put("local/cluster/svc/shop/same/"+fnvHash(hostMessage("10.0.0.8")), hostMessage("10.0.0.8")) // This key is equal to one of ours.
	s.put("com/example/www", `{}`)
	b = startKube2sky(t, srv, s.at)
	b.ready()
	want := keysOfRecords("svc/shop/db/db-0 10.1.0.4", "svc/shop/db/_tcp/_http/db-0 db-0.db.shop.svc.cluster.local. 8080",
		"svc/shop/db/db-1 10.1.0.5", "svc/shop/db/_tcp/_http/db-1 db-1.db.shop.svc.cluster.local. 8080",
		"arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.", "arpa/in-addr/10/1/0/5 db-1.db.shop.svc.cluster.local.",
		"svc/shop/new/ 10.0.0.7", "svc/shop/new/_tcp/_http/#10.0.0.7 new.shop.svc.cluster.local. 80",
		"svc/shop/same/ 10.0.0.8", "svc/shop/same/_tcp/_http/#10.0.0.8 same.shop.svc.cluster.local. 80", "arpa/in-addr/10/0/0/8 same.shop.svc.cluster.local.")
	others := keysOfRecords("svc/shop/web/custom 192.0.2.1", "arpa/in-addr/10/0/0/7 other.example.com.")
	others["com/example/www"] = "{}"
	others["local/cluster/svc/shop/bank/"+fnvHash(hostMessage("bank.example.com."))] = hostMessage("192.0.2.2")
	both := maps.Clone(want)
	maps.Copy(both, others)
	s.awaitKeys(both, keysOf(others)...)
	if n := b.number("seamark_kube2sky_foreign_keys"); n != 2 || b.logs("Key belongs to another program") != 2 {
		t.Errorf("got %v foreign keys and the log\n%s\nwant 2, each logged once", n, b.log())
	}
	// All of our keys are deleted, and no others.
	for _, name := range []string{"bank", "db", "new", "same"} {
		remove(t, services, name)
	}
	s.awaitKeys(others, keysOf(others)...)
	b.terminate()
	if left := s.keys(ownPrefix); len(left) > 0 {
		t.Errorf("keys below %s after the exit: got\n%s\nwant none", ownPrefix, listed(left))
	}
}

func keysOf(all map[string]string) (keys []string) {
	for key := range all {
		keys = append(keys, key)
	}
	return keys
}

// Readers query two names while their Services change, one in a single
// transaction and one in several. They never miss a name, and no name has a lease.
func TestKube2skyChangeWithoutGap(t *testing.T) {
	t.Parallel()
	srv, s := start(t), startKeyReader(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	many := func(round int) (ips []string) {
		for i := range 150 {
			ips = append(ips, fmt.Sprintf("10.%d.1.%d", round%2, i))
		}
		return ips
	}
	add(t, services, service("small"))
	add(t, slices, slice("small-1", "small", "10.9.0.0"))
	add(t, services, service("large"))
	add(t, slices, slice("large-1", "large", many(0)...))
	b := startKube2sky(t, srv, s.at)
	b.ready()

	var readers sync.WaitGroup
	var reads, wrong atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	for i := range 4 {
		name := [...]string{"small", "large"}[i%2]
		readers.Go(func() {
			for ctx.Err() == nil {
				// Read all keys below the name, as SkyDNS does.
				r, err := s.client.Get(ctx, treePrefix+"local/cluster/svc/shop/"+name+"/", clientv3.WithPrefix())
				if err != nil {
					continue
				}
				addresses, ports := 0, 0
				for _, kv := range r.Kvs {
					if kv.Lease != 0 {
						wrong.Add(1)
					}
					if strings.Contains(string(kv.Key), "/_tcp/") {
						ports++
					} else {
						addresses++
					}
				}
				reads.Add(1)
				if least := map[string]int{"small": 1, "large": 150}[name]; addresses < least || ports < least {
					wrong.Add(1)
				}
			}
		})
	}
	for i := range 500 {
		edit(t, slices, "small-1", func(e *discoveryv1.EndpointSlice) {
			e.Endpoints[0].Addresses[0] = fmt.Sprintf("10.9.%d.%d", i/250, i%250+1)
		})
		if i%25 == 0 {
			edit(t, slices, "large-1", func(e *discoveryv1.EndpointSlice) {
				for j, ip := range many(i/25 + 1) {
					e.Endpoints[j].Addresses[0] = ip
				}
			})
		}
	}
	last := fnvHash(hostMessage("10.9.1.250"))
	chaintest.Eventually(t, "the last change", func() bool {
		_, there := s.keys(treePrefix + "local/cluster/svc/shop/small/")[last]
		return there && b.number("seamark_kube2sky_pending") == 0
	})
	stop()
	readers.Wait()
	if n := s.keys(treePrefix + "local/cluster/svc/shop/"); len(n) != 302 {
		t.Errorf("got %d keys, want 302", len(n))
	}
	if reads.Load() < 100 || wrong.Load() > 0 {
		t.Errorf("got %d reads with missing keys or leases of %d, want none of at least 100", wrong.Load(), reads.Load())
	}
	t.Logf("%d reads, %v transactions", reads.Load(), b.number("seamark_kube2sky_transactions_total"))
	chaintest.Eventually(t, "the number of keys", func() bool { return b.number("seamark_kube2sky_keys") == float64(len(s.keys(treePrefix))) })
}

// One of two replicas writes, and the other takes over if it is killed. A replica
// that has lost leadership without noticing cannot write.
func TestKube2skyReplicas(t *testing.T) {
	t.Parallel()
	srv, s := start(t), startKeyReader(t)
	w := writer(t, srv)
	w.shop()
	want := keysOfRecords(shopRecords...)
	services := w.CoreV1().Services("shop")
	more := func(name, ip string) {
		add(t, services, service(name, ip))
		maps.Copy(want, keysOfRecords("svc/shop/"+name+"/ "+ip, "svc/shop/"+name+"/_tcp/_http/#"+ip+" "+name+".shop.svc.cluster.local. 80",
			"arpa/in-addr/"+strings.ReplaceAll(ip, ".", "/")+" "+name+".shop.svc.cluster.local."))
	}
	replicas := []*kube2sky{startKube2sky(t, srv, s.at, "--lease-duration=2s"), startKube2sky(t, srv, s.at, "--lease-duration=2s")}
	for _, b := range replicas {
		b.ready()
	}
	s.awaitKeys(want)
	first, second := replicas[0], replicas[1]
	if second.leads() {
		first, second = second, first
	}
	if !first.leads() || second.leads() || second.number("seamark_kube2sky_pending") != 0 {
		t.Fatalf("leaders: got %v and %v, want one; pending at the other: %v, want 0", first.leads(), second.leads(), second.number("seamark_kube2sky_pending"))
	}

	// The leader is suspended, and its pending writes are stale when it
	// continues.
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	more("asleep", "10.0.1.1")
	s.awaitKeys(want)
	if !second.leads() {
		t.Error("the second replica is not the leader while the first is suspended, want it to be")
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	more("awake", "10.0.1.2")
	s.awaitKeys(want)
	chaintest.Eventually(t, "the first replica is no longer the leader", func() bool { return !first.leads() })
	if n := second.number("seamark_kube2sky_failures_total"); n != 0 {
		t.Errorf("failures of the second replica: got %v, want 0", n)
	}

	second.kill()
	more("killed", "10.0.1.3")
	s.awaitKeys(want)
	if !first.leads() {
		t.Error("the first replica is not the leader after the second was killed, want it to be")
	}
	// A released lease is faster than an expired one.
	third := startKube2sky(t, srv, s.at, "--lease-duration=1h")
	third.ready()
	first.terminate()
	more("ended", "10.0.1.4")
	s.awaitKeys(want)

	// Another replica becomes the leader while the lease of the third is alive. The
	// third replica notices this when a write fails.
	if _, err := s.client.Delete(t.Context(), ownPrefix+"leader/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(t.Context(), ownPrefix+"leader/1", `{"leader":"other"}`); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(want)
	more("guarded", "10.0.1.5")
	chaintest.Eventually(t, "the replica is no longer the leader", func() bool { return !third.leads() })
	s.awaitKeys(before)
	if _, err := s.client.Delete(t.Context(), ownPrefix+"leader/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s.awaitKeys(want)
	third.terminate()
}

// etcd and the API server are unavailable at the start, etcd stops and returns,
// its leader is partitioned from its clients, its quota is exhausted: no key is
// lost, no process crashes, and no key is deleted before the cluster is known.
func TestKube2skyUnavailable(t *testing.T) {
	t.Parallel()
	srv, c := start(t), startEtcdCluster(t, EtcdOptions{Username: "kube2sky", Password: "secret", Quota: 16 << 20})
	config := c.Config()
	s := &keyReader{t, etcdClient(t, config, config.Endpoints...), strings.Join(c.Endpoints(), ",")}
	w := writer(t, srv)
	w.shop()
	for i := range EtcdMembers {
		c.Clients(i, gate.Refused)
	}
	wrong := startKube2sky(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=wrong")
	b := startKube2sky(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=secret", "--etcd-mutation-timeout=2s", "--lease-duration=2s")
	chaintest.Eventually(t, "a failure of etcd in the log", func() bool { return b.logs("etcd failed, retrying") > 0 })
	if code, _ := b.page("/readiness"); code != http.StatusServiceUnavailable {
		t.Errorf("readiness while etcd is unavailable: got %d, want 503", code)
	}
	c.Heal()
	b.ready()
	want := keysOfRecords(shopRecords...)
	s.awaitKeys(want)

	services := w.CoreV1().Services("shop")
	n := 0
	more := func() {
		n++
		name, ip := fmt.Sprintf("s%d", n), fmt.Sprintf("10.0.2.%d", n)
		add(t, services, service(name, ip))
		maps.Copy(want, keysOfRecords("svc/shop/"+name+"/ "+ip, "svc/shop/"+name+"/_tcp/_http/#"+ip+" "+name+".shop.svc.cluster.local. 80",
			"arpa/in-addr/"+strings.ReplaceAll(ip, ".", "/")+" "+name+".shop.svc.cluster.local."))
	}
	leader := etcdLeader(t, c)
	c.Kill(leader)
	more()
	s.awaitKeys(want)
	c.Kill((leader + 1) % EtcdMembers) // One member is left.
	more()
	chaintest.Eventually(t, "another failure of etcd in the log", func() bool { return b.logs("etcd failed, retrying") > 1 })
	for _, i := range []int{leader, (leader + 1) % EtcdMembers} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitKeys(want)

	leader = etcdLeader(t, c)
	c.Clients(leader, gate.Silent)
	more()
	s2 := &keyReader{t, etcdClient(t, config, config.Endpoints[(leader+1)%EtcdMembers]), s.at}
	s2.awaitKeys(want)
	c.Heal()

	if err := c.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	more()
	chaintest.Eventually(t, "the exhausted quota in the log", func() bool { return b.logs("database space exceeded") > 0 })
	if err := c.Free(t.Context()); err != nil {
		t.Fatal(err)
	}
	s2.awaitKeys(want)

	// The API server is unavailable at the start: written keys are kept.
	b.terminate()
	srv.StopAPI()
	b = startKube2sky(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=secret")
	chaintest.Eventually(t, "a failure of the API server in the log", func() bool { return b.logs("API server unreachable") > 0 })
	s2.awaitKeys(want)
	if b.leads() {
		t.Error("kube2sky is the leader without the cluster's objects, want it to wait")
	}
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	more()
	s2.awaitKeys(want)
	b.terminate()
	if wrong.logs("etcd failed, retrying", "authentication failed") != 1 {
		t.Errorf("wrong password: got log\n%s\nwant one line with \"authentication failed\"", wrong.log())
	}
	wrong.terminate()
}

// Services with three pages of keys are written, adopted by the next process, and deleted.
func TestKube2skyLarge(t *testing.T) {
	t.Parallel()
	srv, s := start(t), startKeyReader(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	services := w.CoreV1().Services("shop")
	const n = 700 // three keys each
	for i := range n {
		add(t, services, service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
	}
	began := time.Now()
	b := startKube2sky(t, srv, s.at)
	b.ready()
	t.Logf("%d keys in %v, %v transactions", len(s.keys(treePrefix)), time.Since(began), b.number("seamark_kube2sky_transactions_total"))
	if all, marks := s.keys(treePrefix), s.keys(ownPrefix+"owned/"); len(all) != 3*n || len(marks) != 3*n || b.number("seamark_kube2sky_keys") != 3*n {
		t.Errorf("got %d keys and %d ownership marks, want %d of each", len(all), len(marks), 3*n)
	}
	t.Logf("resident %.1f MB", b.number("process_resident_memory_bytes")/1e6)
	began = time.Now()
	b.kill()
	b = startKube2sky(t, srv, s.at)
	b.ready()
	t.Logf("compared in %v", time.Since(began))
	if n := b.number("seamark_kube2sky_transactions_total"); n != 0 {
		t.Errorf("transactions without a change: got %v, want 0", n)
	}
	began = time.Now()
	for i := range n {
		remove(t, services, fmt.Sprintf("s%d", i))
	}
	s.awaitKeys(map[string]string{})
	t.Logf("deleted in %v", time.Since(began))
}
