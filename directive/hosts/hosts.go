package hosts

import (
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from lines in the format of /etc/hosts: the hosts directive.
//
//	hosts [FILE [ZONES...]] {
//	    ADDRESS NAME...              # a line of a hosts file
//	    file PATH...                 # more files and directories; can be repeated
//	    domain NAME                  # add names of one label with NAME appended too
//	    localise                     # prefer IPv4 addresses in the network of the queried address
//	    ttl SECONDS                  # TTL of all records; default 3600
//	    no_reverse                   # no PTR records
//	    reload DURATION              # interval of checks for changed files; 0 turns it off; default 5s
//	    fallthrough [ZONES...]       # pass queries for names without a line to the next directive
//	    fallthrough_unsupported      # and queries for types other than A, AAAA, PTR and ANY
//	    configmap NAMESPACE/NAME KEY # lines in a ConfigMap; can be repeated
//	    endpoint URL                 # the API server with the ConfigMaps
//	    tls CERT KEY CA              # files, for endpoint
//	    kubeconfig FILE [CONTEXT]    # takes precedence over endpoint
//	    manifests DIR                # a directory of YAML and JSON instead of a cluster
//	}
//
// Use hosts once in a server block. Name the hosts file in FILE. The default is
// /etc/hosts, unless you use file or configmap: hosts { file X } reads only X. The
// lines of FILE, of each PATH, of the Corefile, and of ConfigMaps are combined in
// this order; duplicates count once. Names outside ZONES, by default the zones of
// the server block, are ignored.
//
// A line has an address and its names. # begins a comment. An invalid line of a file
// is ignored, with one warning for each file and change that has the position of the
// first such line; in the Corefile it is an error. If a file had valid lines and has
// none any more, it keeps its previous lines. Addresses with a zone (fe80::1%eth0)
// are ignored.
//
// FILE and PATH can be directories: their regular files are read in the order of
// their names, except files whose names begin with a dot, # or ~, or end with ~. A
// missing file is logged as a warning, and read when it is created; seamark check
// reports it as an error. A path that cannot be examined for another reason is an error.
//
// Use domain to append a domain to short names: a line for db then counts as one for
// db.NAME too. Names with more labels, and names with a dot at the end, are not
// changed. The longer name is the first PTR record.
//
// Use localise for names that have an address in each network of the machine. If any
// IPv4 address of a name is in the network of the address that the query was sent
// to, according to the machine's interfaces, the answer has only those. Otherwise,
// and for queries over IPv6, it has all of them. IPv6 addresses are never removed. A
// new address of an interface takes effect shortly after the first query to it.
//
// Each address is an A or AAAA record of each of its names, and each name is a PTR
// record of its address. A name with a line, or with names below it, is answered
// with NOERROR and no records for other types. All other names in ZONES are NXDOMAIN
// unless they fall through; reverse names without a line always go to the next
// directive. Negative answers have no SOA record, so that resolvers do not cache
// them. Of a name with more than 256 IPv4 addresses they are sorted.
//
// fallthrough_unsupported needs fallthrough, and applies to the same zones: queries
// for other types in these zones go to the next directive, whether the name has a
// line or not.
//
// A name such as *.example.org matches all names below example.org that have no
// line, at any depth, as in RFC 4592: if www.example.org has a line, the wildcard
// matches neither it nor names below it. Wildcards have no PTR records.
//
// Changes of files take effect once the file has not changed for 50 ms, or 500 ms if
// it is empty. The files of a mounted ConfigMap take effect immediately when the
// kubelet replaces its link. A file that cannot be read any more keeps its lines,
// with one warning; the lines of a file that was removed from a directory are
// removed. A file can have 256 MB, and a line 1 MB. A million names take about two
// seconds to load and about 65 MB of memory, and several times that while they load.
//
// To read lines from a ConfigMap without mounting it, use configmap. The service
// account needs the verbs get, list and watch on configmaps with its name in
// resourceNames. Without endpoint, kubeconfig or manifests, the ConfigMap is in the
// pod's own cluster. Changes take effect immediately; if the key or the ConfigMap is
// deleted, its lines are removed. While the API server is unavailable, the last
// state is served. Until the ConfigMap has been read, ready reports that the server
// is not ready, and queries without records in the other lines are answered with
// SERVFAIL unless they fall through. A reload that adds a configmap waits five
// seconds for it, and then fails.
//
//	.:1053 {
//	    hosts {
//	        10.0.0.1 db.example.org *.apps.example.org
//	        configmap kube-system/custom-hosts hosts
//	        fallthrough
//	    }
//	    whoami
//	}
//
// Serve the files of a directory, such as a mounted ConfigMap, as the only names of
// a zone:
//
//	example.org:1053 {
//	    hosts /etc/seamark/hosts.d {
//	        ttl 30
//	    }
//	}
//
// Replace dnsmasq --no-hosts --addn-hosts=/dns/key --expand-hosts
// --domain=example.org --localise-queries:
//
//	.:1053 {
//	    hosts {
//	        file /dns/key
//	        domain example.org
//	        localise
//	        ttl 0
//	        fallthrough
//	    }
//	    whoami
//	}
//
// Metrics: coredns_hosts_entries is the number of records of all hosts directives,
// and coredns_hosts_reload_timestamp_seconds the time of the last change.
//
// Same as CoreDNS: syntax, defaults, zones, and PTR records that do not depend on
// ZONES. Differences: NXDOMAIN instead of SERVFAIL; an invalid line in the Corefile
// is an error; ANY has all addresses; addresses with a zone are ignored. Additions:
// directories, file events, empty non-terminals, file, domain, localise, configmap.
// domain and localise are dnsmasq's --expand-hosts and --localise-queries, but an
// address has PTR records for all of its names.
type Handler struct {
	zones       []zone // longest first
	ttl         uint32
	fallthru    config.Fallthrough
	unsupported bool // queries for unsupported types fall through
	table       *table
	networks    *networks // nil without localise
	inline      []text    // lines of the Corefile, as it is now
}

// A zone is a zone of a Handler.
type zone struct {
	name   wire.Name
	labels int
}

// ServeDNS answers queries for names and addresses that have a line.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if h.unsupported && !supported(q.Type) && h.fallthru.Through(q.Name()) {
		return dns.Next
	}
	x := h.table.index.Load()
	addr, reverse := reversed(q.Name())
	if reverse {
		if names := x.namesOf(addr); len(names) > 0 {
			h.pointers(q, x, names)
			return h.done(q, present)
		}
	}
	labels := h.zoneLabels(q)
	if labels < 0 {
		return dns.Next
	}
	addrs, found := x.lookup(q, labels)
	switch {
	case found == present:
		h.addresses(q, addrs)
	case reverse || h.fallthru.Through(q.Name()):
		return dns.Next
	}
	return h.done(q, found)
}

// Ready reports whether every ConfigMap has been read once.
func (h *Handler) Ready() bool { return h.table.ready() }

// AuthoritativeZones returns the zones of h.
func (h *Handler) AuthoritativeZones() (zones []wire.Name) {
	for _, z := range h.zones {
		zones = append(zones, z.name)
	}
	return zones
}

// NameExists reports whether q's name or a name below it has a line. A handler that
// answers NXDOMAIN checks it first (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	labels := h.zoneLabels(q)
	if labels < 0 {
		return false
	}
	_, found := h.table.index.Load().lookup(q, labels)
	return found != missing
}

// zoneLabels returns the number of labels of the longest zone that contains the
// query name, or -1.
func (h *Handler) zoneLabels(q *dns.Query) int {
	name, labels := q.Name(), q.Labels()
	for i := range h.zones {
		if z := &h.zones[i]; labels >= z.labels && string(name[q.LabelOffset(labels-z.labels):]) == string(z.name) {
			return z.labels
		}
	}
	return -1
}

// supported reports whether lines can have records of type t.
func supported(t wire.Type) bool {
	return t == wire.TypeA || t == wire.TypeAAAA || t == wire.TypePTR || t == wire.TypeANY
}

// done completes the answer. A negative one is SERVFAIL until every ConfigMap has
// been read.
func (h *Handler) done(q *dns.Query, found found) dns.Verdict {
	q.AA = true
	switch {
	case !q.Answer.Empty():
	case !h.table.ready():
		q.Fail(wire.ServFail)
	case found == missing:
		q.RCode = wire.NXDomain
	}
	return dns.Done
}

// addresses writes the addresses of the query type, as many as the reply can hold.
func (h *Handler) addresses(q *dns.Query, addrs addresses) {
	a := &q.Answer
	if q.Type == wire.TypeA || q.Type == wire.TypeANY {
		v4 := addrs.v4
		network, filter := h.networks.local(q, v4)
		if filter && many(v4) {
			v4, filter = within(v4, network), false
		}
		for ; len(v4) > 0 && len(a.Buf) <= q.SizeLimit(); v4 = v4[4:] {
			if filter && !network.Contains(netip.AddrFrom4([4]byte(v4))) {
				continue
			}
			a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeA, h.ttl, 4), v4[:4]...)
			a.Append(wire.Answers, nil, 1)
		}
	}
	if q.Type == wire.TypeAAAA || q.Type == wire.TypeANY {
		for v6 := addrs.v6; len(v6) > 0 && len(a.Buf) <= q.SizeLimit(); v6 = v6[16:] {
			a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeAAAA, h.ttl, 16), v6[:16]...)
			a.Append(wire.Answers, nil, 1)
		}
	}
}

// shrink is more than the factor by which compression makes usual PTR records
// smaller.
const shrink = 4

// pointers writes the names of an address as PTR records.
func (h *Handler) pointers(q *dns.Query, x *index, names []uint32) {
	if q.Type != wire.TypePTR && q.Type != wire.TypeANY {
		return
	}
	a := &q.Answer
	for _, at := range names {
		if len(a.Buf) > shrink*q.SizeLimit() {
			q.TC = true // compression might make the other records fit
			return
		}
		size := len(x.key(at)) + 1
		a.Buf = x.appendName(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypePTR, h.ttl, size), at)
		a.Append(wire.Answers, nil, 1)
	}
}
