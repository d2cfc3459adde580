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
	"github.com/seamark/seamark/internal/web"
)

// A KubednsStatus serves the pages that kube-dns has for its probe and for
// people: the kubedns_status directive.
//
//	kubedns_status [ADDRESS] {
//	    cache local|any
//	}
//
// GET /readiness at ADDRESS, :8081 unless given, answers 200 and ok when every
// directive of the server block that has to get ready has been: kubernetes, when
// it has seen the whole cluster once. Until then it answers 503 and what is
// missing. Once it has said ok it always does, over reloads too.
//
// GET /cache answers with the names of Services, in JSON: a tree of labels from
// the root on, in which each node has ChildNodes and Entries, and each entry is a
// SkyDNS message (host, port, priority, weight, ttl). Addresses stand at the label
// that kube-dns makes of them, SRV records below _PROTO and _PORT, ExternalNames
// in their namespace; sorted. It is written as it is made, and is 750 bytes for a
// Service with one named port. With several kubernetes it is an array of such
// trees.
//
// cache says who may have that: clients on this machine, of the loopback address
// (local, the default: kubectl port-forward, or another container of the pod), or
// everybody who can reach ADDRESS (any). Others are answered 403. Behind a proxy in
// the pod, as service meshes have it, everybody is on this machine.
//
//	.:1053 {
//	    kubedns_status 127.0.0.1:0 {
//	        cache local
//	    }
//	    whoami
//	}
//
// Several server blocks may give the same ADDRESS: ok needs all of them, and the
// trees of all are shown, to everybody only if all say any. Other directives may
// share it. It stays bound over reloads.
//
// Same as kube-dns: paths, replies, the form of the tree. Differs: in kube-dns
// /cache tells all Services of all namespaces to everybody who can reach the
// port; profiles are at the same port, below /debug/pprof/, which is the
// directive pprof here, at an address of its own; before it is ready kube-dns
// does not listen; methods but GET and HEAD are answered 405; /cache has a
// Content-Type, and the ttl is that of the directive kubernetes.
type KubednsStatus struct {
	addr   string
	cache  string
	probes []*probe
	trees  []treeWriter
}

// A treeWriter writes the names that it knows.
type treeWriter interface{ WriteTree(w io.Writer) error }

// SetupKubednsStatus is the Setup of kubedns_status.
func SetupKubednsStatus(b *config.Block, uses []corefile.Directive) error {
	k := &KubednsStatus{addr: ":8081", cache: "local"}
	err := errors.Join(config.Once(uses), address(uses[0], &k.addr), uses[0].Options(
		corefile.Option{Name: "cache", Min: 1, Max: 1, Set: corefile.OneOf(&k.cache, "local", "any")},
	))
	b.OnPlanned(func() error {
		k.probes, k.trees = probesOf(b, false), config.Find[treeWriter](b)
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		site, err := web.At(s, k.addr)
		if err != nil {
			return uses[0].Errorf("%v", err)
		}
		once, _ := config.Keep(s, latchKey{k.addr}, func() (*latch, error) { return new(latch), nil })
		page, _ := config.Keep(s, statusKey{s, k.addr}, func() (*statusPage, error) { return &statusPage{ready: once}, nil })
		page.probes = append(page.probes, k.probes...)
		page.trees = append(page.trees, k.trees...)
		page.local = page.local || k.cache == "local"
		b.OnSwap(func() { // not before, as for ready
			site.Handle("/readiness", reading(page.readiness))
			site.Handle("/cache", reading(page.cache))
			site.Show()
		})
		return nil
	})
	return err
}

// A latch is shut by the first ok at an address, and stays so while any plan has
// that address.
type latch struct{ atomic.Bool }

type latchKey struct{ addr string }

// Stop is for config.Keep.
func (*latch) Stop() {}

type statusKey struct {
	plan *config.Start
	addr string
}

// A statusPage answers for all blocks of one plan that share an address.
type statusPage struct {
	ready  *latch
	probes []*probe
	trees  []treeWriter
	local  bool // the trees are for clients on this machine
}

// Stop is for config.Keep: the page ends with its site.
func (*statusPage) Stop() {}

// reading lets GET and HEAD through to a page.
func reading(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this page can only be read: GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		page(w, r)
	})
}

func (p *statusPage) readiness(w http.ResponseWriter, _ *http.Request) {
	if !p.ready.Load() {
		if waiting := unready(p.probes); len(waiting) > 0 {
			http.Error(w, "not ready yet: "+strings.Join(waiting, ", "), http.StatusServiceUnavailable)
			return
		}
		p.ready.Store(true)
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (p *statusPage) cache(w http.ResponseWriter, r *http.Request) {
	if p.local && !onThisMachine(r) {
		http.Error(w, "the names of all Services are shown on this machine only, unless the Corefile says: cache any", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		p.write(w)
	}
}

// write writes the one tree; an empty one if there is none, and several as an
// array. It ends early when the client has gone.
func (p *statusPage) write(w io.Writer) {
	open, shut := "", ""
	switch {
	case len(p.trees) == 0:
		shut = "{\n\t\"ChildNodes\": {},\n\t\"Entries\": {}\n}"
	case len(p.trees) > 1:
		open, shut = "[", "]"
	}
	for _, t := range p.trees {
		_, _ = io.WriteString(w, open)
		if t.WriteTree(w) != nil {
			return
		}
		open = ",\n"
	}
	_, _ = io.WriteString(w, shut)
}

// onThisMachine says whether the client is: packets from elsewhere do not come
// from a loopback address.
func onThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
