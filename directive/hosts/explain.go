package hosts

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/wire"
)

const (
	explainedSize  = 16 << 20 // bytes of the largest file in which lines are searched
	explainedLines = 5        // that a cause names
	comparedNames  = 20_000   // with one that no line has
)

// ExplainDNS implements [dns.Explainer]. It names the lines that have the name or the
// address. The index has no lines: the sources are read again.
func (h *Handler) ExplainDNS(q *dns.Query, v dns.Verdict) (causes []dns.Cause) {
	add := func(format string, args ...any) *dns.Cause {
		causes = append(causes, dns.Cause{Text: fmt.Sprintf(format, args...)})
		return &causes[len(causes)-1]
	}
	if !h.table.ready() {
		add("not synced: %s has not been read since the start", h.table.unlisted())
	}

	x := h.table.index.Load()
	addr, reverse := reversed(q.Name())

	if v == dns.Done && q.RCode == wire.NoError && q.Answer.Empty() {
		add("the name has no %s records", q.Type)
	}
	if reverse && len(x.namesOf(addr)) > 0 {
		return append(causes, h.lines(func(a netip.Addr, _ []byte) bool { return a == addr })...)
	}

	_, apex := h.zones.Longest(&q.Request, 0)
	if apex < 0 {
		add("the name is in none of the zones of the directive")
		return causes
	}

	switch i, found := x.find(q, apex); found {
	case present:
		name := string(x.appendName(nil, x.names[i]))
		if hostsfile.IsWildcard([]byte(name)) && name != string(q.Name()) {
			add("no line has the name; the wildcard %s matches it", wire.Name(name))
		}
		causes = append(causes, h.lines(func(_ netip.Addr, n []byte) bool { return string(n) == name })...)
		if v == dns.Next {
			add("fallthrough_unsupported passes %s queries on", q.Type)
		}
	case empty:
		add("the name has no line; names below it have")
	default:
		add("no line has the name").Nearest = x.nearest(wire.Name(q.Name()))
		if above := x.wildcardAbove(wire.Name(q.Name())); above != "" {
			add("the wildcard %s matches only names of one more label than the rest", above)
		}
	}
	return causes
}

// wildcardAbove returns the longest wildcard that would match a name if * stood for several
// labels, or "".
func (x *index) wildcardAbove(name wire.Name) wire.Name {
	for range name.Labels() - 1 {
		name = name[1+name[0]:]
		wildcard := wire.Name("\x01*" + name)
		if _, found := x.search(appendReversed(nil, []byte(wildcard[:len(wildcard)-1]))); found == present {
			return wildcard
		}
	}
	return ""
}

// nearest returns a similar name that has a line, or "".
func (x *index) nearest(name wire.Name) string {
	var known []string
	for _, offset := range x.names[:min(len(x.names), comparedNames)] {
		known = append(known, wire.Name(x.appendName(nil, offset)).String())
	}
	return corefile.Nearest(name.String(), known)
}

// lines returns a cause for each line with an address and a name that match accepts.
func (h *Handler) lines(match func(netip.Addr, []byte) bool) (causes []dns.Cause) {
	search := func(t text, object *dns.Object) {
		number := t.line
		for line := range strings.Lines(t.lines) {
			number++
			found := false
			add := func(a netip.Addr, name []byte) { found = found || match(a, name) }
			if hostsfile.Parse(line, h.table.domain, add, func(hostsfile.Error) {}); !found || len(causes) >= explainedLines {
				continue
			}
			line = strings.Join(strings.FieldsFunc(line, hostsfile.IsBlank), " ")
			if len(line) > wire.MaxName {
				line = line[:wire.MaxName] + "..."
			}
			causes = append(causes, dns.Cause{Text: fmt.Sprintf("%s:%d: %s", t.name, number, line), Object: object})
		}
	}

	for _, path := range h.table.paths {
		f := newFiles(path)
		f.limit = explainedSize
		texts, wrong := f.readAll()
		for _, t := range texts {
			search(t, nil)
		}
		for file, err := range wrong {
			causes = append(causes, dns.Cause{Text: fmt.Sprintf("the lines of %s are not searched: %v", file, err)})
		}
	}

	for _, t := range h.inline {
		search(t, nil)
	}

	for _, m := range h.table.maps {
		namespace, name, _ := strings.Cut(m.name, "/")
		lines, _ := m.lines()
		object := &dns.Object{Kind: cluster.ConfigMaps.ObjectKind(), Namespace: namespace, Name: name}
		search(text{name: m.String(), lines: lines}, object)
	}

	if causes == nil {
		causes = []dns.Cause{{Text: "a line that has changed meanwhile"}}
	}
	return causes
}

// ReadObjects implements explain.ObjectReader.
func (h *Handler) ReadObjects(ctx context.Context, objects []*dns.Object) {
	for _, o := range objects {
		named := func(m mapKey) bool { return m.name == o.Namespace+"/"+o.Name }
		if i := slices.IndexFunc(h.table.maps, named); i >= 0 {
			explain.ReadOrigins(ctx, h.table.maps[i].sink.Origins(), []*dns.Object{o})
		}
	}
}
