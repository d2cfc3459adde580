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
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// skyShop lists the keys that kube2sky writes for clusterWriter.shop.
var skyShop = []string{
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
	srv, s := start(t), newSky(t)
	w := writer(t, srv)
	w.shop()
	b := newBridge(t, srv, s.at)
	b.ready()
	s.becomes(skyRecords(skyShop...))
	if got := s.keys(skyTree)["local/cluster/svc/shop/web/f488b1a2"]; got != `{"host":"10.0.0.1","priority":10,"weight":10,"ttl":30}` {
		t.Errorf("web has %s", got)
	}
	if b.number("seamark_kube2sky_keys") != float64(len(skyShop)) || b.number("seamark_kube2sky_pending") != 0 || !b.leads() {
		t.Error(b.page("/metrics"))
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
	changed := skyRecords("svc/shop/web/ 10.0.0.1", "svc/shop/web/ fd00::1", "svc/shop/web/_tcp/_http/#10.0.0.1 web.shop.svc.cluster.local. 81",
		"svc/shop/db/db-0 10.1.0.4", "svc/shop/db/_tcp/_http/db-0 db-0.db.shop.svc.cluster.local. 8080",
		"svc/shop/db/db-1 10.1.0.5", "svc/shop/db/_tcp/_http/db-1 db-1.db.shop.svc.cluster.local. 8080",
		"svc/shop/bank/ bank.example.com.", "pod/shop/1-2-3-4/ 1.2.3.4",
		skyShop[6], skyShop[7], "arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.", "arpa/in-addr/10/1/0/5 db-1.db.shop.svc.cluster.local.")
	s.becomes(changed)
	b.ends()
	s.becomes(changed) // names survive their writer

	// Meanwhile objects are deleted, and another writer adds keys.
	remove(t, services, "web")
	remove(t, w.CoreV1().Pods("shop"), "p")
	add(t, services, service("new", "10.0.0.7"))
	add(t, services, service("same", "10.0.0.8"))
	s.put("local/cluster/svc/shop/web/custom", skyHost("192.0.2.1")) // beside ours
	s.put("local/cluster/svc/shop/bank/"+skyHash(skyHost("bank.example.com.")), skyHost("192.0.2.2"))
	s.put("arpa/in-addr/10/0/0/7", skyHost("somebody.example.com."))                        // at the key of one of ours
	s.put("local/cluster/svc/shop/same/"+skyHash(skyHost("10.0.0.8")), skyHost("10.0.0.8")) // equal to one of ours
	s.put("com/example/www", `{}`)
	b = newBridge(t, srv, s.at)
	b.ready()
	want := skyRecords("svc/shop/db/db-0 10.1.0.4", "svc/shop/db/_tcp/_http/db-0 db-0.db.shop.svc.cluster.local. 8080",
		"svc/shop/db/db-1 10.1.0.5", "svc/shop/db/_tcp/_http/db-1 db-1.db.shop.svc.cluster.local. 8080",
		"arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.", "arpa/in-addr/10/1/0/5 db-1.db.shop.svc.cluster.local.",
		"svc/shop/new/ 10.0.0.7", "svc/shop/new/_tcp/_http/#10.0.0.7 new.shop.svc.cluster.local. 80",
		"svc/shop/same/ 10.0.0.8", "svc/shop/same/_tcp/_http/#10.0.0.8 same.shop.svc.cluster.local. 80", "arpa/in-addr/10/0/0/8 same.shop.svc.cluster.local.")
	others := skyRecords("svc/shop/web/custom 192.0.2.1", "arpa/in-addr/10/0/0/7 somebody.example.com.")
	others["com/example/www"] = "{}"
	others["local/cluster/svc/shop/bank/"+skyHash(skyHost("bank.example.com."))] = skyHost("192.0.2.2")
	both := maps.Clone(want)
	maps.Copy(both, others)
	s.becomes(both, keysOf(others)...)
	if n := b.number("seamark_kube2sky_foreign_keys"); n != 2 || b.logs("Key belongs to another program") != 2 {
		t.Errorf("%v keys are said to be others'\n%s", n, b.log())
	}
	// All of our keys are deleted, and no others.
	for _, name := range []string{"bank", "db", "new", "same"} {
		remove(t, services, name)
	}
	s.becomes(others, keysOf(others)...)
	b.ends()
	if left := s.keys(skyOurs); len(left) > 0 {
		t.Errorf("behind it stays\n%s", listed(left))
	}
}

func keysOf(all map[string]string) (keys []string) {
	for key := range all {
		keys = append(keys, key)
	}
	return keys
}

// Readers query two names while their Services change, one in a single
// transaction and one in several. They never miss a name, and the election's
// lease is on no name.
func TestKube2skyNeverGone(t *testing.T) {
	srv, s := start(t), newSky(t)
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
	b := newBridge(t, srv, s.at)
	b.ready()

	var crowd sync.WaitGroup
	var looks, wrong atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	for i := range 4 {
		name := [...]string{"small", "large"}[i%2]
		crowd.Go(func() {
			for ctx.Err() == nil {
				// As a reader does: everything below a name.
				r, err := s.client.Get(ctx, skyTree+"local/cluster/svc/shop/"+name+"/", clientv3.WithPrefix())
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
				looks.Add(1)
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
	last := skyHash(skyHost("10.9.1.250"))
	eventually(t, "the last change", func() bool {
		_, there := s.keys(skyTree + "local/cluster/svc/shop/small/")[last]
		return there && b.number("seamark_kube2sky_pending") == 0
	})
	stop()
	crowd.Wait()
	if n := s.keys(skyTree + "local/cluster/svc/shop/"); len(n) != 302 {
		t.Errorf("%d keys", len(n))
	}
	if looks.Load() < 100 || wrong.Load() > 0 {
		t.Errorf("%d of %d looks were wrong", wrong.Load(), looks.Load())
	}
	t.Logf("%d looks, %v transactions", looks.Load(), b.number("seamark_kube2sky_transactions_total"))
	eventually(t, "the number of keys", func() bool { return b.number("seamark_kube2sky_keys") == float64(len(s.keys(skyTree))) })
}

// One of two replicas writes. It is killed, and the other takes over. A replica
// that has lost its leadership without noticing cannot write.
func TestKube2skyReplicas(t *testing.T) {
	srv, s := start(t), newSky(t)
	w := writer(t, srv)
	w.shop()
	want := skyRecords(skyShop...)
	services := w.CoreV1().Services("shop")
	more := func(name, ip string) {
		add(t, services, service(name, ip))
		maps.Copy(want, skyRecords("svc/shop/"+name+"/ "+ip, "svc/shop/"+name+"/_tcp/_http/#"+ip+" "+name+".shop.svc.cluster.local. 80",
			"arpa/in-addr/"+strings.ReplaceAll(ip, ".", "/")+" "+name+".shop.svc.cluster.local."))
	}
	replicas := []*bridge{newBridge(t, srv, s.at, "--lease-duration=2s"), newBridge(t, srv, s.at, "--lease-duration=2s")}
	for _, b := range replicas {
		b.ready()
	}
	s.becomes(want)
	first, second := replicas[0], replicas[1]
	if second.leads() {
		first, second = second, first
	}
	if !first.leads() || second.leads() || second.number("seamark_kube2sky_pending") != 0 {
		t.Fatal("not one of them leads")
	}

	// The leader is suspended, and its pending writes are stale when it
	// continues.
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	more("asleep", "10.0.1.1")
	s.becomes(want)
	if !second.leads() {
		t.Error("the other one does not lead")
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	more("awake", "10.0.1.2")
	s.becomes(want)
	eventually(t, "the first one knows", func() bool { return !first.leads() })
	if n := second.number("seamark_kube2sky_failures_total"); n != 0 {
		t.Errorf("%v failures", n)
	}

	second.kill()
	more("killed", "10.0.1.3")
	s.becomes(want)
	if !first.leads() {
		t.Error("the first one does not lead again")
	}
	// A released lease is faster than an expired one.
	third := newBridge(t, srv, s.at, "--lease-duration=1h")
	third.ready()
	first.ends()
	more("ended", "10.0.1.4")
	s.becomes(want)

	// Another replica becomes leader while the first one's lease is alive. The
	// first one notices when a write fails.
	if _, err := s.client.Delete(t.Context(), skyOurs+"leader"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(t.Context(), skyOurs+"leader", `{"leader":"somebody"}`); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(want)
	more("guarded", "10.0.1.5")
	eventually(t, "it finds out", func() bool { return !third.leads() })
	s.becomes(before)
	if _, err := s.client.Delete(t.Context(), skyOurs+"leader"); err != nil {
		t.Fatal(err)
	}
	s.becomes(want)
	third.ends()
}

// etcd and the API server are unavailable at the start, etcd stops and returns,
// its leader is partitioned from its clients, its quota is exhausted: no key is
// lost, no process crashes, and no key is deleted before the cluster is known.
func TestKube2skyAway(t *testing.T) {
	srv, c := start(t), startEtcdCluster(t, EtcdOptions{Username: "kube2sky", Password: "secret", Quota: 16 << 20})
	config := c.Config()
	s := &sky{t, etcdClient(t, config, config.Endpoints...), strings.Join(c.Endpoints(), ",")}
	w := writer(t, srv)
	w.shop()
	for i := range EtcdMembers {
		c.Clients(i, gate.Refused)
	}
	wrong := newBridge(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=wrong")
	b := newBridge(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=secret", "--etcd-mutation-timeout=2s", "--lease-duration=2s")
	eventually(t, "it says that etcd is away", func() bool { return b.logs("etcd failed, retrying") > 0 })
	if code, _ := b.page("/readiness"); code != http.StatusServiceUnavailable {
		t.Errorf("readiness %d", code)
	}
	c.Heal()
	b.ready()
	want := skyRecords(skyShop...)
	s.becomes(want)

	services := w.CoreV1().Services("shop")
	n := 0
	more := func() {
		n++
		name, ip := fmt.Sprintf("s%d", n), fmt.Sprintf("10.0.2.%d", n)
		add(t, services, service(name, ip))
		maps.Copy(want, skyRecords("svc/shop/"+name+"/ "+ip, "svc/shop/"+name+"/_tcp/_http/#"+ip+" "+name+".shop.svc.cluster.local. 80",
			"arpa/in-addr/"+strings.ReplaceAll(ip, ".", "/")+" "+name+".shop.svc.cluster.local."))
	}
	leader := etcdLeader(t, c)
	c.Kill(leader)
	more()
	s.becomes(want)
	c.Kill((leader + 1) % EtcdMembers) // one is left
	more()
	eventually(t, "it says that nobody leads etcd", func() bool { return b.logs("etcd failed, retrying") > 1 })
	for _, i := range []int{leader, (leader + 1) % EtcdMembers} {
		if err := c.Restart(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes(want)

	leader = etcdLeader(t, c)
	c.Clients(leader, gate.Silent)
	more()
	s2 := &sky{t, etcdClient(t, config, config.Endpoints[(leader+1)%EtcdMembers]), s.at}
	s2.becomes(want)
	c.Heal()

	if err := c.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	more()
	eventually(t, "it says that etcd is full", func() bool { return b.logs("database space exceeded") > 0 })
	if err := c.Free(t.Context()); err != nil {
		t.Fatal(err)
	}
	s2.becomes(want)

	// The API server is unavailable at the start: written keys are kept.
	b.ends()
	srv.StopAPI()
	b = newBridge(t, srv, s.at, "--etcd-username=kube2sky", "--etcd-password=secret")
	eventually(t, "it says that the API server is away", func() bool { return b.logs("cannot") > 0 })
	s2.becomes(want)
	if b.leads() {
		t.Error("one that knows nothing leads")
	}
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	more()
	s2.becomes(want)
	b.ends()
	if wrong.logs("etcd failed, retrying", "authentication failed") != 1 {
		t.Errorf("with a wrong password:\n%s", wrong.log())
	}
	wrong.ends()
}

// 2,000 Services are written, recognised by the next writer, and deleted.
func TestKube2skyLarge(t *testing.T) {
	srv, s := start(t), newSky(t)
	w := writer(t, srv)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	services := w.CoreV1().Services("shop")
	const n = 2000
	for i := range n {
		add(t, services, service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
	}
	begin := time.Now()
	b := newBridge(t, srv, s.at)
	b.ready()
	t.Logf("%d keys in %v, %v transactions", len(s.keys(skyTree)), time.Since(begin), b.number("seamark_kube2sky_transactions_total"))
	if all, marks := s.keys(skyTree), s.keys(skyOurs+"owned/"); len(all) != 3*n || len(marks) != 3*n || b.number("seamark_kube2sky_keys") != 3*n {
		t.Errorf("%d keys, %d marks", len(all), len(marks))
	}
	t.Logf("resident %.1f MB", b.number("process_resident_memory_bytes")/1e6)
	begin = time.Now()
	b.kill()
	b = newBridge(t, srv, s.at)
	b.ready()
	t.Logf("followed in %v", time.Since(begin))
	if n := b.number("seamark_kube2sky_transactions_total"); n != 0 {
		t.Errorf("%v transactions where nothing has changed", n)
	}
	begin = time.Now()
	for i := range n {
		remove(t, services, fmt.Sprintf("s%d", i))
	}
	s.becomes(map[string]string{})
	t.Logf("deleted in %v", time.Since(begin))
}
