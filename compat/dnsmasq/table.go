package dnsmasq

// An arity states whether an option has a value.
type arity uint8

const (
	none arity = iota
	required
	optional
)

// An option is an option of dnsmasq: implemented by set, ignored, or refused.
type option struct {
	name    string
	short   string // one letter
	arg     arity
	once    bool // may be given once
	set     func(setting) error
	note    string // how it works differently, or why it is ignored
	refusal string // the reason if it is refused
}

// options returns the options of dnsmasq 2.90, which set the fields of r.
func (r *reader) options() []option {
	dropTypes := list(&r.dropped, droppedType)
	return append([]option{
		// Process and listeners.
		{name: "port", short: "p", arg: required, once: true, set: number(&r.Port, 1, 65535)},
		{name: "listen-address", short: "a", arg: required, set: list(&r.listen, address)},
		{name: "interface", short: "i", arg: required, set: list(&r.interfaces, interfaceName)},
		{name: "except-interface", short: "I", arg: required, set: list(&r.except, interfaceName)},
		{name: "bind-interfaces", short: "z"},
		{name: "bind-dynamic", note: "the addresses of an interface are read at the start only"},
		{name: "keep-in-foreground", short: "k"},
		{name: "no-daemon", short: "d", set: on(&r.debugging)},
		{name: "user", short: "u", arg: required, once: true, set: nonEmpty},
		{name: "group", short: "g", arg: required, once: true, set: nonEmpty},
		{name: "pid-file", short: "x", arg: optional, once: true, set: r.pidFile},
		{name: "conf-file", short: "C", arg: optional, set: r.confFile},
		{name: "conf-dir", short: "7", arg: required, set: r.directory},
		{name: "version", short: "v", set: on(&r.Version)},
		{name: "help", short: "w", set: on(&r.Help)},
		{name: "test", set: on(&r.Test)},
		{name: "no-ident", set: on(&r.noIdent)},
		{
			name: "max-tcp-connections", arg: required, once: true, set: checked(1, 1<<30),
			note: "the number of connections is limited for the whole server",
		},

		// Upstreams.
		{name: "server", short: "S", arg: required, set: r.server},
		{name: "local", arg: required, set: r.server},
		{name: "rev-server", arg: required, set: r.reverseServer},
		{name: "no-resolv", short: "R", set: on(&r.noResolv)},
		{name: "resolv-file", short: "r", arg: required, set: list(&r.resolvFiles, path)},
		{name: "no-poll", short: "n", note: "changes of resolv.conf are always followed"},
		{name: "clear-on-reload", note: "the cache keeps its answers when resolv.conf changes"},
		{name: "strict-order", short: "o", set: on(&r.strict)},
		{name: "all-servers", note: "a query is sent to the next upstream when the previous one is late"},
		{
			name: "fast-dns-retry", arg: optional, once: true, set: numbers(2, 1, 1<<30),
			note: "the delay before a query is sent again is measured, not configured",
		},
		{name: "dns-forward-max", short: "0", arg: required, once: true, set: number(&r.forwardMax, 1, 1<<30)},
		{name: "dns-loop-detect", set: on(&r.loop)},
		{
			name: "query-port", short: "Q", arg: required, once: true, set: checked(0, 65535),
			note: "queries are sent from random ports",
		},
		{
			name: "min-port", arg: required, once: true, set: checked(0, 65535),
			note: "queries are sent from random ports of the system's range",
		},
		{
			name: "max-port", arg: required, once: true, set: checked(0, 65535),
			note: "queries are sent from random ports of the system's range",
		},
		{name: "port-limit", arg: required, once: true, set: checked(1, 1<<30)},
		{name: "proxy-dnssec"},

		// Static names.
		{name: "no-hosts", short: "h", set: on(&r.noHosts)},
		{name: "addn-hosts", short: "H", arg: required, set: list(&r.hosts, path)},
		{name: "hostsdir", arg: required, set: list(&r.hosts, path)},
		{name: "expand-hosts", short: "E", set: on(&r.expand)},
		{name: "domain", short: "s", arg: required, set: r.suffix},
		{name: "local-ttl", short: "T", arg: required, once: true, set: number(&r.localTTL, 0, 65535)},
		{name: "localise-queries", short: "y", set: on(&r.localise)},
		{name: "address", short: "A", arg: required, set: r.addressOption},
		{name: "host-record", arg: required, set: r.hostRecord},
		{name: "cname", arg: required, set: r.cname},
		{name: "srv-host", short: "W", arg: required, set: r.srv},
		{name: "txt-record", short: "Y", arg: required, set: r.txt},
		{name: "ptr-record", arg: required, set: r.ptr},
		{name: "mx-host", short: "m", arg: required, set: r.mx},
		{name: "mx-target", short: "t", arg: required, once: true, set: name(&r.mxTarget)},
		{name: "naptr-record", arg: required, set: r.naptr},
		{name: "caa-record", arg: required, set: r.caa},
		{name: "dns-rr", arg: required, set: r.unknownType},

		// Cache.
		{name: "cache-size", short: "c", arg: required, once: true, set: number(&r.cacheSize, 0, 1<<30)},
		{name: "no-negcache", short: "N", set: on(&r.noNegative)},
		{
			name: "neg-ttl", arg: required, once: true, set: checked(0, 1<<31-1),
			note: "negative answers without a SOA record are not cached",
		},
		{name: "max-ttl", arg: required, once: true, set: number(&r.maxTTL, 0, 1<<31-1)},
		{name: "max-cache-ttl", arg: required, once: true, set: number(&r.maxCache, 0, 1<<31-1)},
		{name: "min-cache-ttl", arg: required, once: true, set: r.minCache},
		{name: "use-stale-cache", arg: optional, once: true, set: r.useStale},
		{name: "cache-rr", arg: required}, // the cache has every type
		{name: "no-round-robin", set: on(&r.noRotation)},

		// Filters.
		{name: "domain-needed", short: "D", set: on(&r.plainLocal)},
		{name: "bogus-priv", short: "b", set: on(&r.privateReverse)},
		{name: "stop-dns-rebind", set: on(&r.stopRebind)},
		{name: "rebind-localhost-ok", set: on(&r.localhost)},
		{name: "rebind-domain-ok", arg: required, set: r.rebindDomain},
		{name: "filter-A", set: func(setting) error { return dropTypes(setting{value: "A"}) }},
		{name: "filter-AAAA", set: func(setting) error { return dropTypes(setting{value: "AAAA"}) }},
		{name: "filter-rr", arg: required, set: dropTypes},
		{name: "edns-packet-max", short: "P", arg: required, once: true, set: r.packetSize},

		// Log.
		{name: "log-queries", short: "q", arg: optional, set: r.logMode},
		{name: "log-facility", short: "8", arg: required, once: true, set: r.facility},
		{name: "log-async", arg: optional, once: true, set: numbers(1, 1, 1<<30)},
		{name: "log-debug", set: on(&r.Debug)},
	}, refused()...)
}

// on sets a switch.
func on(to *bool) func(setting) error {
	return func(setting) error {
		*to = true
		return nil
	}
}
