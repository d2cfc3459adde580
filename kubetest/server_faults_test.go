package kubetest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// behindProxy starts a server that follows an API server with a shop through a
// proxy that has these faults.
func behindProxy(t *testing.T, faults Faults) (*daemon, *Proxy, clusterWriter) {
	t.Helper()
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	proxy.Set(faults)
	return serve(t, corefileOf("endpoint "+proxy.URL())), proxy, w
}

// failing waits until attempts to follow a resource have failed n times more.
func (d *daemon) failing(resource string, n int) {
	d.Helper()
	from := d.count("watch_errors", resource)
	eventually(d.T, "failed attempts", func() bool { return d.count("watch_errors", resource) >= from+n })
}

// unsynced checks that the whole zone is SERVFAIL.
func (d *daemon) unsynced() {
	d.Helper()
	for _, q := range shopNames() {
		q.want = "SERVFAIL"
		d.says(q)
	}
}

// Without permission to read EndpointSlices the server does not get ready, and
// what depends on them is SERVFAIL; the rest is answered. When the permission
// goes later, what is known stays, and what may still be read changes.
func TestServerForbidden(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{Forbidden: []string{"endpointslices"}})
	d.becomes(inA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"))
	d.failing("endpointslices", 4)
	for _, q := range shopNames() {
		switch q.name {
		case "10-1-0-1.web.shop.svc.cluster.local", "db.shop.svc.cluster.local", "_http._tcp.db.shop.svc.cluster.local",
			"3.0.1.10.in-addr.arpa", "9.9.9.10.in-addr.arpa": // any endpoint may have such an address
			q.want = "SERVFAIL"
		}
		d.says(q)
	}
	d.isReady(false)
	if d.logs("[WARNING]", "forbids to list endpointslices.discovery.k8s.io", "grant list and watch") != 1 {
		t.Error("want one line with the verb and the resource")
	}
	proxy.Set(Faults{})
	d.becomes(shopNames()...)
	d.isReady(true)
	c := d.crowd(shopNames()...)

	proxy.Set(Faults{Forbidden: []string{"endpointslices"}})
	proxy.Cut()
	eventually(t, "a log line", func() bool { return d.logs("[WARNING]", "forbids", "endpointslices.discovery.k8s.io") == 2 })
	add(t, w.DiscoveryV1().EndpointSlices("shop"), slice("late-1", "late", "10.1.6.1"))
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.becomes(inA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	d.says(inA("10-1-6-1.late.shop.svc.cluster.local", "NXDOMAIN"))
	d.isReady(true)
	proxy.Set(Faults{})
	d.becomes(inA("10-1-6-1.late.shop.svc.cluster.local", "NOERROR 10.1.6.1"))
	c.leave()
}

// The API server does not know us, at first and again later.
func TestServerUnauthorized(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{Unauthorized: true})
	d.failing("services", 3)
	d.unsynced()
	if d.logs("[WARNING]", "does not accept our token") != 1 {
		t.Error("want one line about the token")
	}
	proxy.Set(Faults{})
	d.becomes(shopNames()...)
	d.crowd(shopNames()...)
	proxy.Set(Faults{Unauthorized: true})
	proxy.Cut()
	d.failing("services", 3)
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	proxy.Set(Faults{})
	d.becomes(inA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	eventually(t, "a log line", func() bool { return d.logs("accepts us again") == 2 })
}

// The kubeconfig may come later than the server.
func TestServerKubeconfigComes(t *testing.T) {
	api := start(t)
	writer(t, api).shop()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	d := serve(t, corefileOf("kubeconfig "+file))
	eventually(t, "a log line", func() bool { return d.logs("[WARNING]", file) == 1 })
	d.unsynced()
	text := must(os.ReadFile(must(api.Kubeconfig())(t)))(t)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	took := d.becomes(shopNames()...)
	t.Logf("%v from the file to the answers", took)
	if d.logs("[INFO]", "server="+api.URL()) != 1 {
		t.Error("want a line about it")
	}
}

// Whatever the API server sends, what is known is answered, and what changed
// is known when it sends sense again. History is lost in between, so that it
// is lists that come broken.
func TestServerBrokenAnswers(t *testing.T) {
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	d := serve(t, corefileOf("endpoint "+proxy.URL()))
	d.becomes(shopNames()...)
	d.crowd(shopNames()...)
	for i, broken := range []struct {
		what   string
		faults Faults
	}{
		{"garbage", Faults{Garbage: true}},
		{"cut at once", Faults{CutAfter: 1}},
		{"cut amidst the first object", Faults{CutAfter: 100}},
		{"cut behind the first object", Faults{CutAfter: 300}},
	} {
		name := "late-" + string(rune('a'+i))
		ip := "10.0.6." + string(rune('1'+i))
		add(t, w.CoreV1().Services("shop"), service(name, ip))
		d.becomes(inA(name+".shop.svc.cluster.local", "NOERROR "+ip))
		proxy.Set(Faults{Stall: true})
		proxy.Cut()
		remove(t, w.CoreV1().Services("shop"), name)
		g := gap{t: t, api: api}
		g.forget()
		proxy.Set(broken.faults)
		proxy.Cut()
		d.failing("services", 2)
		d.says(inA(name+".shop.svc.cluster.local", "NOERROR "+ip))
		proxy.Set(Faults{})
		took := d.becomes(inA(name+".shop.svc.cluster.local", "NXDOMAIN"))
		t.Logf("%s: right again after %v", broken.what, took)
	}
}

// A watch that is open and says nothing: what is known is answered, its age
// shows, and when the watch goes on nothing is missing.
func TestServerStalledWatch(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{})
	d.becomes(shopNames()...)
	d.crowd(shopNames()...)
	proxy.Set(Faults{Stall: true})
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	eventually(t, "old data", func() bool { return d.age("services") > 0.5 })
	d.says(inA("late.shop.svc.cluster.local", "NXDOMAIN"))
	proxy.Set(Faults{})
	took := d.becomes(inA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	t.Logf("right again after %v", took)
}

// The way to the API server dies without a word to either side, as when a
// firewall forgets a connection. HTTP/2 pings notice it; they are made quick
// here, by default it takes them 45 s.
func TestServerHalfOpenWatch(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	api := start(t)
	w := writer(t, api)
	w.shop()
	way := newRelay(t, api)
	d := serve(t, corefileOf("kubeconfig "+way.kubeconfig(t, api)))
	d.becomes(shopNames()...)
	d.crowd(shopNames()...)
	way.forget()
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	took := d.becomes(inA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	t.Logf("noticed, and right again, after %v", took)
	if took < 500*time.Millisecond || took > 5*time.Second {
		t.Error("this was no half-open connection, or it took too long")
	}
}
