package kubetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// behindProxy starts a server that follows an API server with a shop through a
// proxy with these faults.
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

// awaitFailures waits for n more failed attempts to list or watch a resource.
func (d *daemon) awaitFailures(resource string, n int) {
	d.Helper()
	from := d.count("watch_errors", resource)
	chaintest.Eventually(d.T, "failed attempts", func() bool { return d.count("watch_errors", resource) >= from+n })
}

// checkNotSynced checks that the whole zone is SERVFAIL.
func (d *daemon) checkNotSynced() {
	d.Helper()
	for _, q := range shopNames() {
		q.want = "SERVFAIL"
		d.check(q)
	}
}

// Without permission to read EndpointSlices the server is not ready, and names
// that depend on them are SERVFAIL; others are answered. If the permission is
// withdrawn later, known data are kept, and the other resources are followed.
func TestServerForbidden(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{Forbidden: []string{"endpointslices"}})
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"))
	d.awaitFailures("endpointslices", 4)
	for _, q := range shopNames() {
		switch q.name {
		case "10-1-0-1.web.shop.svc.cluster.local", "db.shop.svc.cluster.local", "_http._tcp.db.shop.svc.cluster.local",
			"3.0.1.10.in-addr.arpa", "9.9.9.10.in-addr.arpa": // any endpoint may have such an address
			q.want = "SERVFAIL"
		}
		d.check(q)
	}
	d.checkReady(false)
	if d.logs("[WARNING]", "List or watch forbidden, grant both to the service account", "kind=EndpointSlice verb=list") != 1 {
		t.Error("want one line with the verb and the resource")
	}
	proxy.Set(Faults{})
	d.await(shopNames()...)
	d.checkReady(true)
	load := d.startLoad(shopNames()...)

	proxy.Set(Faults{Forbidden: []string{"endpointslices"}})
	proxy.Cut()
	chaintest.Eventually(t, "a log line", func() bool {
		return d.logs("[WARNING]", "List or watch forbidden", "kind=EndpointSlice") == 2
	})
	add(t, w.DiscoveryV1().EndpointSlices("shop"), slice("late-1", "late", "10.1.6.1"))
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	d.check(lookupA("10-1-6-1.late.shop.svc.cluster.local", "NXDOMAIN"))
	d.checkReady(true)
	proxy.Set(Faults{})
	d.await(lookupA("10-1-6-1.late.shop.svc.cluster.local", "NOERROR 10.1.6.1"))
	load.stop()
}

// The API server rejects our credentials, at first and again later.
func TestServerUnauthorized(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{Unauthorized: true})
	d.awaitFailures("services", 3)
	d.checkNotSynced()
	if d.logs("[WARNING]", "API server rejects the token or certificate") != 1 {
		t.Error("want one line about the token")
	}
	proxy.Set(Faults{})
	d.await(shopNames()...)
	d.startLoad(shopNames()...)
	proxy.Set(Faults{Unauthorized: true})
	proxy.Cut()
	d.awaitFailures("services", 3)
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	proxy.Set(Faults{})
	d.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	chaintest.Eventually(t, "a log line", func() bool { return d.logs("accepts the credentials again") == 2 })
}

// The kubeconfig may be created after the start of the server.
func TestServerKubeconfigCreatedLater(t *testing.T) {
	api := start(t)
	writer(t, api).shop()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	d := serve(t, corefileOf("kubeconfig "+file))
	chaintest.Eventually(t, "a log line", func() bool { return d.logs("[WARNING]", "reading kubeconfig", file) == 1 })
	d.checkNotSynced()
	text := must(os.ReadFile(must(api.Kubeconfig())(t)))(t)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	took := d.await(shopNames()...)
	t.Logf("%v from the file to the answers", took)
	if d.logs("[INFO]", "API server address known", "address="+api.URL()) != 1 {
		t.Error("want a line about it")
	}
}

// Whatever the API server sends, known names are answered, and changes are known
// when its responses are valid again. History is dropped in between, so the
// invalid responses are lists.
func TestServerBrokenAnswers(t *testing.T) {
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	d := serve(t, corefileOf("endpoint "+proxy.URL()))
	d.await(shopNames()...)
	d.startLoad(shopNames()...)
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
		d.await(lookupA(name+".shop.svc.cluster.local", "NOERROR "+ip))
		proxy.Set(Faults{Stall: true})
		proxy.Cut()
		remove(t, w.CoreV1().Services("shop"), name)
		g := watchGap{t: t, api: api}
		g.forget()
		proxy.Set(broken.faults)
		proxy.Cut()
		d.awaitFailures("services", 2)
		d.check(lookupA(name+".shop.svc.cluster.local", "NOERROR "+ip))
		proxy.Set(Faults{})
		took := d.await(lookupA(name+".shop.svc.cluster.local", "NXDOMAIN"))
		t.Logf("%s: right again after %v", broken.what, took)
	}
}

// An open watch stalls: known names are answered, the age of the data grows, and
// no event is missing when the watch continues.
func TestServerStalledWatch(t *testing.T) {
	d, proxy, w := behindProxy(t, Faults{})
	d.await(shopNames()...)
	d.startLoad(shopNames()...)
	proxy.Set(Faults{Stall: true})
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	chaintest.Eventually(t, "old data", func() bool { return d.age("services") > 0.5 })
	d.check(lookupA("late.shop.svc.cluster.local", "NXDOMAIN"))
	proxy.Set(Faults{})
	took := d.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	t.Logf("right again after %v", took)
}

// The connection to the API server dies silently, as when a firewall drops its
// state. HTTP/2 pings detect it; they are frequent here, by default it takes 45
// s.
func TestServerHalfOpenWatch(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	api := start(t)
	w := writer(t, api)
	w.shop()
	way := newRelay(t, api)
	d := serve(t, corefileOf("kubeconfig "+way.kubeconfig(t, api)))
	d.await(shopNames()...)
	d.startLoad(shopNames()...)
	way.forget()
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	took := d.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	t.Logf("right answers after %v", took)
	if took < 500*time.Millisecond {
		t.Errorf("change behind a half-open connection: got it after %v, want it after 500ms", took)
	}
	bound.AtMost(t, "a change behind a half-open connection", took, 15*time.Second)
}

// The log contains no credentials, whatever the API server and the kubeconfig do.
func TestServerLogWithoutCredentials(t *testing.T) {
	const token = "c2VjcmV0LXRva2Vu"
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: proxy.URL()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	valid := must(clientcmd.Write(*config))(t)
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("users:\n- user:\n    token: [" + token + "\n"))
	d := serve(t, strings.Replace(corefileOf("kubeconfig "+file), " errors", " errors\n debug", 1))
	chaintest.Eventually(t, "a log line about the kubeconfig", func() bool { return d.logs("kubeconfig", file) > 0 })
	put([]byte("apiVersion: v1\nkind: Config\nusers: " + token + "\n"))
	chaintest.Eventually(t, "another one", func() bool { return d.logs("kubeconfig", file) > 1 })
	put(valid)
	d.await(shopNames()...)
	for _, faults := range []Faults{{Unauthorized: true}, {Forbidden: []string{"services"}}, {Garbage: true}} {
		proxy.Set(faults)
		proxy.Cut()
		d.awaitFailures("services", 1)
	}
	proxy.Set(Faults{})
	d.await(shopNames()...)
	for line := range strings.Lines(d.log()) {
		if strings.Contains(line, token) {
			t.Errorf("got log line %s, want none with the token", line)
		}
	}
}
