package kubernetes

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

var errNotVerified = errors.New("needs the option pods verified in the directive kubernetes")

// NeedClients has the index keep pods by their addresses. Directives that use them
// call it in OnPlanned.
func (h *Handler) NeedClients() error {
	if h.podMode != podsVerified {
		return errNotVerified
	}
	h.options.podsByAddr = true
	return nil
}

// NeedClientLabels is NeedClients for directives that use the labels of pods too.
func (h *Handler) NeedClientLabels() error {
	h.options.PodLabels = h.podMode == podsVerified
	return h.NeedClients()
}

// Client returns the pod with an address; nil if no pod or several have it, or if it is a
// node's address. NeedClients must have been called.
func (h *Handler) Client(ip netip.Addr) *cluster.Pod { return h.index.PodAt(ip) }

// SearchPath reports whether a pod's resolver has made the query's name from the name
// that it looks up and the first element of its search path, NS.svc.ZONE. labels is the
// number of labels of the name that it looks up. With byAddress NS is the namespace of
// the client's pod, otherwise any namespace that exists. It reports false for names of
// Services in that namespace, and for names below these.
func (h *Handler) SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool) {
	z := h.zone(q)
	if z == nil || z.reverse || z.multicluster {
		return 0, false
	}
	l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	if l.depth < 3 || string(l.label(l.depth-1)) != "svc" {
		return 0, false
	}
	name := q.Name()
	if ns := h.index.Namespace(name[q.LabelOffset(l.depth-2):q.LabelOffset(l.depth-1)]); !ns.Exposed() {
		return 0, false
	} else if byAddress {
		if p := h.index.PodAt(q.Peer.Addr()); p == nil || p.Namespace != ns.Name {
			return 0, false
		}
	}
	if h.index.Service(name[q.LabelOffset(l.depth-3):q.LabelOffset(l.depth-1)]).Visible() {
		return 0, false
	}
	return l.depth - 2, true
}

// Metadata implements [config.Describer]: parts of the query's name, and the client's
// pod.
func (h *Handler) Metadata(q *dns.Query, key string) (value string, ok bool) {
	key, ours := strings.CutPrefix(key, "kubernetes/")
	if !ours {
		return "", false
	}
	if rest, ok := strings.CutPrefix(key, "client-"); ok {
		return h.clientMetadata(q, rest)
	}
	z := h.zone(q)
	if z == nil {
		return "", false
	}
	l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	p, ok := l.nameParts()
	if key == "parse-error" {
		return "invalid query name", !ok
	}
	if !ok {
		return "", false
	}
	value, ok = p[key]
	return value, ok
}

func (h *Handler) clientMetadata(q *dns.Query, key string) (value string, ok bool) {
	p := h.index.PodAt(q.Peer.Addr())
	if p == nil {
		return "", false
	}
	switch key {
	case "namespace":
		return p.Namespace, true
	case "pod-name":
		return p.Name, true
	}
	if name, ok := strings.CutPrefix(key, "label/"); ok {
		return p.Labels.Get(name)
	}
	return "", false
}

// nameParts returns the labels of the name by their meaning. It returns false if the zone
// cannot have such a name.
func (l *lookup) nameParts() (map[string]string, bool) {
	p := map[string]string{"kind": "", "namespace": "", "service": "", "endpoint": "", "port-name": "",
		"protocol": "", "cluster": "", "zone": ""}
	if l.depth == 0 {
		return p, true
	}

	text := func(from, to int) string {
		return strings.TrimSuffix(string(wire.AppendText(nil,
			append(l.q.Name()[l.q.LabelOffset(from):l.q.LabelOffset(to):l.q.LabelOffset(to)], 0))), ".")
	}

	left := l.depth - 3 // labels in front of the Service's name
	p["kind"] = text(l.depth-1, l.depth)
	if p["kind"] != "svc" && p["kind"] != "pod" || l.zone.reverse {
		return nil, false
	}
	if l.depth > 1 {
		p["namespace"] = text(l.depth-2, l.depth-1)
	}
	if l.depth > 2 {
		p["service"] = text(left, left+1)
	}

	switch {
	case left <= 0:
	case p["kind"] == "pod":
		return nil, false
	case l.zonal && string(l.label(left-1)) == "_zone":
		if left > 2 {
			p["zone"] = text(0, left-2)
		}
	case l.label(left - 1)[0] == '_' && (left <= 2 || left == 3 && l.kubeDNS):
		p["protocol"] = text(left-1, left)[1:]
		if left >= 2 {
			p["port-name"] = strings.TrimPrefix(text(left-2, left-1), "_")
		}
		if left == 3 {
			p["endpoint"] = text(0, 1)
		}
	case left == 1:
		p["endpoint"] = text(0, 1)
	case l.zone.multicluster:
		p["endpoint"], p["cluster"] = text(0, 1), text(1, left)
	default:
		return nil, false
	}

	return p, true
}

var _ config.Describer = (*Handler)(nil)
