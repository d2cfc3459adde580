package etcd

import (
	"fmt"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	explainedKeys = 5    // that the causes name
	countedKeys   = 1000 // that are counted
)

// ExplainDNS implements [dns.Explainer]. It names the keys at and below that of the name.
func (h *Handler) ExplainDNS(q *dns.Query, v dns.Verdict) (causes []dns.Cause) {
	add := func(format string, args ...any) {
		causes = append(causes, dns.Cause{Text: fmt.Sprintf(format, args...)})
	}

	apex := h.apex(q)
	if apex < 0 {
		add("the name is in none of the zones of the directive")
		return causes
	}

	l := lookup{Handler: h, q: q, apex: apex, index: h.index}
	path, ok := appendPath(nil, l.lookupName())
	switch {
	case !ok:
		add("a label of the name has a zero byte, which no key has")
		return causes
	case h.readsEtcd():
		add("the keys at and below %s are read from etcd for each query", keyOf(h.index.prefix, path))
		return causes
	case !h.index.synced():
		add("not synced: the keys in etcd have not been listed since the start")
		return causes
	}

	if apex == 0 {
		if q.Type == wire.TypeSOA {
			add("the name is that of the zone, which has a SOA record")
			return causes
		}
		path = l.apexPath(path, q.Type)
	}

	count := 0
	var m message
	r, _ := l.find(path) // it reads the index only
	for ; count < countedKeys && r.next(&m); count++ {
		if count < explainedKeys {
			add("key %s", keyOf(h.index.prefix, []byte(m.path)))
		}
	}

	switch {
	case count == 0:
		add("no key is at or below %s", keyOf(h.index.prefix, path))
	case count == countedKeys:
		add("and at least %d more keys below %s", count-explainedKeys, keyOf(h.index.prefix, path))
	case count > explainedKeys:
		add("and %d more keys below %s", count-explainedKeys, keyOf(h.index.prefix, path))
	}

	if v == dns.Next {
		add("fallthrough passes the name on")
	}
	return causes
}
