package hosts

import (
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from lines such as those of /etc/hosts: the hosts directive.
//
//	hosts [FILE [ZONES…]] {
//	    ADDRESS NAME…                # a line of hosts
//	    file PATH…                   # more files and directories; may be given several times
//	    domain NAME                  # names of one label have NAME behind them as well
//	    localise                     # of a name's IPv4 addresses, those in the network that was asked
//	    ttl SECONDS                  # of all records; 3600
//	    no_reverse                   # no PTR records
//	    reload DURATION              # how often files are looked at besides; 0 reads them once; 5s
//	    fallthrough [ZONES…]         # names without a line are asked of the next handler
//	    fallthrough_unsupported      # types other than A, AAAA, PTR and ANY are, too
//	    configmap NAMESPACE/NAME KEY # lines in a ConfigMap; may be given several times
//	    endpoint URL                 # the API server with the ConfigMaps
//	    tls CERT KEY CA              # files, for endpoint
//	    kubeconfig FILE [CONTEXT]    # wins over endpoint
//	    manifests DIR                # a folder of YAML and JSON instead of a cluster
//	}
//
// It can stand once in a server block. FILE is /etc/hosts unless it is given, or a
// file or a configmap is: hosts { file X } reads X alone. Names outside of ZONES,
// which are the block's own unless given, are left out. Lines of FILE, of each PATH,
// of the Corefile and of ConfigMaps add up, in this order; what is said twice counts
// once.
//
// A line has an address and its names. # begins a comment. A line that is wrong
// is left out alone, and one warning for each file and change names the first of
// them with FILE:LINE; in the Corefile it is an error. A file that was good and
// has no right line any more is not taken: what it said before stays. Addresses
// that mean something on one machine alone (fe80::1%eth0) are left out.
//
// FILE and PATH may be directories: all regular files in one count, in the order of
// their names, but those that begin with a dot or # or end with ~. What is not there
// is one warning, and read when it comes.
//
// With domain, a line for db says what one for db.NAME would say, too. Names with
// more labels, and those that are written with a dot at the end, stay as they are.
// The longer name is the first PTR record.
//
// With localise, if any IPv4 address of a name is in the network of the address that
// the query was sent to, as the machine's interface has it with the length of its
// prefix, the answer has only those that are. If none is, if the address is not one
// of an interface, and over IPv6, it has all of them. IPv6 addresses are given always.
// An address that an interface gets later is known a moment after the first query
// for it.
//
// Each address is an A or AAAA record of each of its names, and each name a PTR
// record of its address. A name with a line has no other records: questions for
// other types are answered NOERROR without any. So are names that others are
// below. All other names in ZONES do not exist: NXDOMAIN, unless they fall
// through. Reverse names without a line are asked of the next handler always.
// There is no SOA record to any of this, so that no resolver keeps a negative
// answer.
//
// A name such as *.example.org stands for every name below example.org, at any
// depth, that nothing else is said of (RFC 4592): beside a line for
// www.example.org neither that name nor one below it has the wildcard's
// addresses. Wildcards have no PTR records.
//
// A change of files is answered at once, as soon as they have been left alone for
// 50 ms. A file that was emptied is given half a second to be filled again. The files
// of a mounted ConfigMap, which change all together when a link does, wait for
// nothing. What cannot be read any more keeps its lines, and is said once; a file
// that has left its directory takes its lines with it. A file may have 256 MB, and a
// line 1 MB. A million names are read within a second and take 85 MB, and a few times
// that meanwhile.
//
// A ConfigMap is watched by itself: the service account needs get, list and
// watch on configmaps with its name in resourceNames. Without endpoint,
// kubeconfig or manifests it is that of the pod's own cluster. Changes are
// answered as they come; when the key or the object is deleted, its lines go.
// While the API server is away the last state is served. Until the first one has
// come ready says no, and what the other lines have no records of is answered
// SERVFAIL unless it falls through; a reload that brings a new configmap waits
// for it, and fails without it after five seconds.
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
// The files of a folder, such as a mounted ConfigMap, for names that are nobody
// else's:
//
//	example.org:1053 {
//	    hosts /etc/seamark/hosts.d {
//	        ttl 30
//	    }
//	}
//
// What dnsmasq reads with --no-hosts --addn-hosts=/dns/key --expand-hosts
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
// Metrics: coredns_hosts_entries, the records that all hosts directives have, and
// coredns_hosts_reload_timestamp_seconds.
//
// Same as CoreDNS: syntax, defaults, zones, and that PTR records do not depend on
// ZONES. Differs: NXDOMAIN where CoreDNS says SERVFAIL; a wrong word in the
// braces is an error, and not a line that is left out; ANY has all addresses;
// addresses with a scope are left out. Ours: directories, events in place of the
// poll alone, names between, file, domain, localise, configmap. domain and localise
// are dnsmasq's --expand-hosts and --localise-queries, but an address has all of its
// names as PTR records.
type Handler struct {
	zones       []zone // longest first
	ttl         uint32
	through     config.Fallthrough
	unsupported bool // types that there are no records of fall through
	table       *table
	networks    *networks // the machine's, if only addresses in the client's count
}

// A zone is one that a handler serves.
type zone struct {
	name   wire.Name
	labels int
}

// ServeDNS answers the names of the handler's lines.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if h.unsupported && !supported(q.Type) {
		return dns.Next
	}
	x := h.table.index.Load()
	addr, reverse := reversed(q)
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
	case reverse || h.through.Through(q.Name()):
		return dns.Next
	}
	return h.done(q, found)
}

// Ready says whether every ConfigMap has been seen once. It stays so while the
// API server is away.
func (h *Handler) Ready() bool { return h.table.ready() }

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

// zoneLabels counts the labels of the longest zone that the question is in; -1
// if it is in none.
func (h *Handler) zoneLabels(q *dns.Query) int {
	name, labels := q.Name(), q.Labels()
	for i := range h.zones {
		if z := &h.zones[i]; labels >= z.labels && string(name[q.LabelOffset(labels-z.labels):]) == string(z.name) {
			return z.labels
		}
	}
	return -1
}

// supported says whether lines can give records of the type.
func supported(t wire.Type) bool {
	return t == wire.TypeA || t == wire.TypeAAAA || t == wire.TypePTR || t == wire.TypeANY
}

// done ends the answer. That there are no such records nobody can know before
// every ConfigMap has come.
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

// addresses writes those of the type asked for. More than the reply may hold is
// of no use to anybody.
func (h *Handler) addresses(q *dns.Query, addrs addresses) {
	a := &q.Answer
	if q.Type == wire.TypeA || q.Type == wire.TypeANY {
		near, some := h.networks.near(q, addrs.v4)
		for v4 := addrs.v4; len(v4) > 0 && len(a.Buf) <= q.SizeLimit(); v4 = v4[4:] {
			if some && !near.Contains(netip.AddrFrom4([4]byte(v4))) {
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

// shrink is more than compression makes an answer of PTR records smaller that
// anybody waits for.
const shrink = 4

// pointers writes the names of an address.
func (h *Handler) pointers(q *dns.Query, x *index, names []uint32) {
	if q.Type != wire.TypePTR && q.Type != wire.TypeANY {
		return
	}
	a := &q.Answer
	for _, at := range names {
		if len(a.Buf) > shrink*q.SizeLimit() {
			q.TC = true // they might have fitted after all
			return
		}
		name := x.name(at)
		a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypePTR, h.ttl, len(name)), name...)
		a.Append(wire.Answers, nil, 1)
	}
}
