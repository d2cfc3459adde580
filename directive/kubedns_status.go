package directive

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/slots"
)

// KubednsStatus serves kube-dns's status pages: the kubedns_status directive. Its reference
// page is docs/reference/directives/kubedns_status.md.
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
	k := &KubednsStatus{addr: ":8081"}
	err := errors.Join(config.Once(uses), web.ReadAddress(uses[0], &k.addr), uses[0].Options(
		corefile.Option{Usage: "cache local|any", Default: "local", Set: corefile.OneOf(&k.cache, "local", "any")},
	))

	b.OnPlanned(func() error {
		k.probes, k.trees = newProbes(b, false), config.Find[treeWriter](b)
		return nil
	})
	web.ServePages(b, uses[0], k.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		ready, _ := config.Keep(s, k.addr, func() (*latch, error) { return new(latch), nil })
		page, _ := config.Keep(s, config.InPlan{Plan: s, Key: k.addr}, func() (*statusPage, error) {
			return &statusPage{ready: ready, writing: slots.New(2, 1)}, nil
		})

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

// Stop implements config.Stopper.
func (*latch) Stop() {}

// A statusPage serves all blocks of one plan that share an address.
type statusPage struct {
	ready  *latch
	probes []*probe
	trees  []treeWriter
	local  bool // only loopback clients may read the trees

	writing *slots.Pool // for trees, which keep the entries of a moment until they are read
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
		if waiting, reasons := unready(p.probes); len(waiting) > 0 {
			http.Error(w, "not ready: "+strings.Join(waiting, ", ")+reasons, http.StatusServiceUnavailable)
			return
		}
		p.ready.Store(true)
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (p *statusPage) cache(w http.ResponseWriter, r *http.Request) {
	if p.local && !fromLoopback(r) {
		http.Error(w, "only clients on this machine may read this page; "+
			"the Corefile option \"cache any\" allows other clients", http.StatusForbidden)
		return
	}
	client := web.Client(r)
	if !p.writing.TryAcquire(client) {
		http.Error(w, "the page is being read: try again", http.StatusServiceUnavailable)
		return
	}
	defer p.writing.Release(client)

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
func fromLoopback(r *http.Request) bool { return web.Client(r).IsLoopback() }
