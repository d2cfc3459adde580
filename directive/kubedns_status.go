package directive

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
)

// KubednsStatus serves kube-dns's status pages: the kubedns_status directive.
//
//	kubedns_status [ADDRESS] {
//	    cache local|any
//	}
//
// Use it when you replace kube-dns and keep its probe. GET /readiness at
// ADDRESS, :8081 by default, returns 200 and ok when every directive of the
// server block is ready; kubernetes is ready once it has received the cluster's
// objects. Until then it returns 503 and the names of the directives that are
// not ready. After the first ok it always returns ok, over reloads too.
//
// GET /cache returns the names of all Services as JSON: a tree of labels that
// begins at the root, in which each node has ChildNodes and Entries, and each
// entry is a SkyDNS message (host, port, priority, weight, ttl). Addresses are
// at the label that kube-dns generates for them, SRV records below _PROTO and
// _PORT, and ExternalNames in their namespace. The tree is sorted. It is
// streamed, and takes 750 bytes for a Service with one named port. If the
// server block has several kubernetes directives, the page is an array of such
// trees.
//
// cache selects which clients may read /cache. With local, the default, only
// clients with a loopback address may: kubectl port-forward, or another
// container of the pod. With any, every client that reaches ADDRESS may. Other
// clients get 403. Behind a proxy in the pod, such as a service mesh's, every
// client has a loopback address.
//
//	.:1053 {
//	    kubedns_status 127.0.0.1:0 {
//	        cache local
//	    }
//	    whoami
//	}
//
// Several server blocks may use the same ADDRESS: ok requires that all are
// ready, /cache shows the trees of all, and every client may read it only if
// all have cache any. Other directives may share the ADDRESS. It stays open
// over reloads.
//
// Same as kube-dns: paths, replies and the format of the tree. Differs: in kube-dns
// every client that reaches the port can read /cache; kube-dns serves profiles at
// the same port, for which you use the pprof directive here; kube-dns does not
// listen before it is ready; methods other than GET and HEAD return 405; /cache has
// a Content-Type; and ttl is the ttl of the kubernetes directive.
type KubednsStatus struct {
	addr   string
	cache  string
	probes []*probe
	trees  []treeWriter
}

// A treeWriter writes the JSON tree of the names that it serves.
type treeWriter interface{ WriteTree(w io.Writer) error }

// SetupKubednsStatus sets up the kubedns_status directive.
func SetupKubednsStatus(b *config.Block, uses []corefile.Directive) error {
	k := &KubednsStatus{addr: ":8081", cache: "local"}
	err := errors.Join(config.Once(uses), httpAddress(uses[0], &k.addr), uses[0].Options(
		corefile.Option{Usage: "cache local|any", Set: corefile.OneOf(&k.cache, "local", "any")},
	))
	b.OnPlanned(func() error {
		k.probes, k.trees = newProbes(b, false), config.Find[treeWriter](b)
		return nil
	})
	servePages(b, uses[0], k.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		ready, _ := config.Keep(s, latchKey{k.addr}, func() (*latch, error) { return new(latch), nil })
		page, _ := config.Keep(s, statusKey{s, k.addr}, func() (*statusPage, error) { return &statusPage{ready: ready}, nil })
		page.probes = append(page.probes, k.probes...)
		page.trees = append(page.trees, k.trees...)
		page.local = page.local || k.cache == "local"
		b.OnSwap(func() { // not earlier, as in SetupReady
			site.Handle("/readiness", readOnly(page.readiness))
			site.Handle("/cache", readOnly(page.cache))
		})
		return nil
	})
	return err
}

// A latch is set by the first ok at an address. It stays set as long as
// consecutive plans use that address.
type latch struct{ atomic.Bool }

type latchKey struct{ addr string }

// Stop implements config.Stopper.
func (*latch) Stop() {}

type statusKey struct {
	plan *config.Start
	addr string
}

// A statusPage serves all blocks of one plan that share an address.
type statusPage struct {
	ready  *latch
	probes []*probe
	trees  []treeWriter
	local  bool // only loopback clients may read the trees
}

// Stop implements config.Stopper. The page ends with its site.
func (*statusPage) Stop() {}

// readOnly answers methods other than GET and HEAD with 405.
func readOnly(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		page(w, r)
	})
}

func (p *statusPage) readiness(w http.ResponseWriter, _ *http.Request) {
	if !p.ready.Load() {
		if waiting := unready(p.probes); len(waiting) > 0 {
			http.Error(w, "not ready: "+strings.Join(waiting, ", "), http.StatusServiceUnavailable)
			return
		}
		p.ready.Store(true)
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (p *statusPage) cache(w http.ResponseWriter, r *http.Request) {
	if p.local && !fromLoopback(r) {
		http.Error(w, "only clients on this machine may read this page; the Corefile option \"cache any\" allows other clients", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		p.write(w)
	}
}

// write writes the tree, an empty tree if there is none, or an array of several
// trees. It returns early when the client has disconnected.
func (p *statusPage) write(w io.Writer) {
	before, end := "", ""
	switch {
	case len(p.trees) == 0:
		end = "{\n\t\"ChildNodes\": {},\n\t\"Entries\": {}\n}"
	case len(p.trees) > 1:
		before, end = "[", "]"
	}
	for _, t := range p.trees {
		_, _ = io.WriteString(w, before)
		if t.WriteTree(w) != nil {
			return
		}
		before = ",\n"
	}
	_, _ = io.WriteString(w, end)
}

// fromLoopback reports whether the client has a loopback address, which packets
// from other machines cannot have.
func fromLoopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
