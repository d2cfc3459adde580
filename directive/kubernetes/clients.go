package kubernetes

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A client is the pods that have one address. It is immutable.
type client struct {
	pod    *cluster.Pod
	others *client
}

// podAt gives the pod that has an address; nil if there is none, or if that
// cannot be told: several have it, or it is its node's.
func (ix *Index) podAt(ip netip.Addr) *cluster.Pod {
	key := address(ip.As16())
	if c := ix.clients.Get(key[:]); c != nil && c.others == nil && !c.pod.Host {
		return c.pod
	}
	return nil
}

// moveClient puts now, which may be nil, in the place of before, which may be
// nil too, at all addresses of both: one that stays is never away.
func (ix *Index) moveClient(before, now *cluster.Pod) {
	if !ix.set.clients {
		return
	}
	var at []netip.Addr
	for _, p := range []*cluster.Pod{before, now} {
		if p != nil {
			at = append(at, p.IPs...)
		}
	}
	for ip := range once(at) {
		key := address(ip.As16())
		var next *client
		for c := ix.clients.Get(key[:]); c != nil; c = c.others {
			if c.pod != before {
				next = &client{c.pod, next}
			}
		}
		if now != nil && slices.Contains(now.IPs, ip) {
			next = &client{now, next}
		}
		if next == nil {
			ix.clients.Delete(string(key[:]))
		} else {
			ix.clients.Set(string(key[:]), next)
		}
	}
}

var errNotVerified = errors.New("needs the option pods verified in the directive kubernetes")

// NeedClients says that somebody is going to ask which pod a client is. It is
// called in a second pass of planning.
func (h *Handler) NeedClients() error {
	if h.pods != podsVerified {
		return errNotVerified
	}
	h.source.clients = true
	return nil
}

// SearchPath finds out whether the question is for a name that a pod's resolver
// has put together from what it looks for and the first element of its search
// path, NS.svc.ZONE; labels counts those of what it looks for. With byAddress
// NS is the namespace of the pod that asks; otherwise any namespace that there
// is. Names at a Service of that namespace, or below one, are never taken for
// that.
func (h *Handler) SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool) {
	z := h.zone(q)
	if z == nil || z.reverse || z.multicluster {
		return 0, false
	}
	l := lookup{Handler: h, q: q, zone: z, below: q.Labels() - z.labels}
	if l.below < 3 || string(l.label(l.below-1)) != "svc" {
		return 0, false
	}
	name := q.Name()
	if s := h.index.spaces.Get(name[q.LabelOffset(l.below-2):q.LabelOffset(l.below-1)]); s == nil || !s.exposed.Load() {
		return 0, false
	} else if byAddress {
		if p := h.index.podAt(q.Peer.Addr()); p == nil || p.Namespace != s.name {
			return 0, false
		}
	}
	if h.index.services.Get(name[q.LabelOffset(l.below-3):q.LabelOffset(l.below-1)]).visible() {
		return 0, false
	}
	return l.below - 2, true
}

// Metadata tells what the labels of the question's name say, and which pod
// asks.
func (h *Handler) Metadata(q *dns.Query, key string) (value string, ok bool) {
	key, ours := strings.CutPrefix(key, "kubernetes/")
	if !ours {
		return "", false
	}
	if of, ok := strings.CutPrefix(key, "client-"); ok {
		return h.ofClient(q, of)
	}
	z := h.zone(q)
	if z == nil {
		return "", false
	}
	l := lookup{Handler: h, q: q, zone: z, below: q.Labels() - z.labels}
	p, ok := l.parts()
	if key == "parse-error" {
		return "invalid query name", !ok
	}
	if !ok {
		return "", false
	}
	value, ok = p[key]
	return value, ok
}

func (h *Handler) ofClient(q *dns.Query, key string) (value string, ok bool) {
	p := h.index.podAt(q.Peer.Addr())
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

// parts are the labels of a name by what they are; false if the name is none
// that the zone could have.
func (l *lookup) parts() (map[string]string, bool) {
	p := map[string]string{"kind": "", "namespace": "", "service": "", "endpoint": "", "port-name": "", "protocol": "", "cluster": "", "zone": ""}
	if l.below == 0 {
		return p, true
	}
	text := func(from, to int) string {
		return strings.TrimSuffix(string(wire.AppendText(nil, append(l.q.Name()[l.q.LabelOffset(from):l.q.LabelOffset(to):l.q.LabelOffset(to)], 0))), ".")
	}
	left := l.below - 3 // labels in front of the Service's
	p["kind"] = text(l.below-1, l.below)
	if p["kind"] != "svc" && p["kind"] != "pod" || l.zone.reverse {
		return nil, false
	}
	if l.below > 1 {
		p["namespace"] = text(l.below-2, l.below-1)
	}
	if l.below > 2 {
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
	case l.label(left - 1)[0] == '_' && (left <= 2 || left == 3 && l.kubedns):
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
