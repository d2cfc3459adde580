package dnsmasq

// An arity states whether an option has a value.
type arity uint8

const (
	none arity = iota
	must
	may
)

// An option is an option of dnsmasq: implemented by set, ignored, or refused.
type option struct {
	name  string
	short string // one letter
	arg   arity
	once  bool // may be given once
	set   func(*reader, setting) error
	lost  string // note if it is ignored or works differently
	why   string // reason if it is refused
}

// table returns the options of dnsmasq 2.90.
func table() []option {
	all := []option{
		// Process and listeners.
		{name: "port", short: "p", arg: must, once: true, set: number(1, 65535, func(o *Options) *int { return &o.Port })},
		{name: "listen-address", short: "a", arg: must, set: (*reader).listenOn},
		{name: "interface", short: "i", arg: must, set: interfaces(func(o *Options) *[]string { return &o.interfaces })},
		{name: "except-interface", short: "I", arg: must, set: interfaces(func(o *Options) *[]string { return &o.except })},
		{name: "bind-interfaces", short: "z"},
		{name: "bind-dynamic", lost: "the addresses of an interface are read at the start only"},
		{name: "keep-in-foreground", short: "k"},
		{name: "no-daemon", short: "d", set: (*reader).noDaemon},
		{name: "user", short: "u", arg: must, once: true, set: user},
		{name: "group", short: "g", arg: must, once: true, set: user},
		{name: "pid-file", short: "x", arg: may, once: true, set: (*reader).pidFile},
		{name: "conf-file", short: "C", arg: may, set: (*reader).confFile},
		{name: "conf-dir", short: "7", arg: must, set: func(r *reader, s setting) error { return r.directory(show(s.value)) }},
		{name: "version", short: "v", set: on(func(o *Options) *bool { return &o.Version })},
		{name: "help", short: "w", set: on(func(o *Options) *bool { return &o.Help })},
		{name: "test", set: on(func(o *Options) *bool { return &o.Test })},
		{name: "no-ident", set: on(func(o *Options) *bool { return &o.noIdent })},
		{name: "max-tcp-connections", arg: must, once: true, set: checked(1, 1<<30), lost: "the number of connections is limited for the whole server"},

		// Upstreams.
		{name: "server", short: "S", arg: must, set: (*reader).server},
		{name: "local", arg: must, set: (*reader).server},
		{name: "rev-server", arg: must, set: (*reader).reverseServer},
		{name: "no-resolv", short: "R", set: on(func(o *Options) *bool { return &o.noResolv })},
		{name: "resolv-file", short: "r", arg: must, set: paths(func(o *Options) *[]string { return &o.resolvFiles })},
		{name: "no-poll", short: "n", lost: "changes of resolv.conf are always followed"},
		{name: "clear-on-reload", lost: "the cache keeps its answers when resolv.conf changes"},
		{name: "strict-order", short: "o", set: on(func(o *Options) *bool { return &o.strict })},
		{name: "all-servers", lost: "a query is sent to the next upstream when the previous one is late"},
		{name: "fast-dns-retry", arg: may, once: true, set: list(2, 1, 1<<30), lost: "the delay before a query is sent again is measured, not configured"},
		{name: "dns-forward-max", short: "0", arg: must, once: true, set: number(1, 1<<30, func(o *Options) *int { return &o.forwardMax })},
		{name: "dns-loop-detect", set: on(func(o *Options) *bool { return &o.loop })},
		{name: "query-port", short: "Q", arg: must, once: true, set: checked(0, 65535), lost: "queries are sent from random ports"},
		{name: "min-port", arg: must, once: true, set: checked(0, 65535), lost: "queries are sent from random ports of the system's range"},
		{name: "max-port", arg: must, once: true, set: checked(0, 65535), lost: "queries are sent from random ports of the system's range"},
		{name: "port-limit", arg: must, once: true, set: checked(1, 1<<30)},
		{name: "proxy-dnssec"},

		// Static names.
		{name: "no-hosts", short: "h", set: on(func(o *Options) *bool { return &o.noHosts })},
		{name: "addn-hosts", short: "H", arg: must, set: paths(func(o *Options) *[]string { return &o.hosts })},
		{name: "hostsdir", arg: must, set: paths(func(o *Options) *[]string { return &o.hosts })},
		{name: "expand-hosts", short: "E", set: on(func(o *Options) *bool { return &o.expand })},
		{name: "domain", short: "s", arg: must, set: (*reader).suffix},
		{name: "local-ttl", short: "T", arg: must, once: true, set: number(0, 65535, func(o *Options) *int { return &o.localTTL })},
		{name: "localise-queries", short: "y", set: on(func(o *Options) *bool { return &o.localise })},
		{name: "address", short: "A", arg: must, set: (*reader).address},
		{name: "host-record", arg: must, set: (*reader).hostRecord},
		{name: "cname", arg: must, set: (*reader).alias},
		{name: "srv-host", short: "W", arg: must, set: (*reader).service},
		{name: "txt-record", short: "Y", arg: must, set: (*reader).txt},
		{name: "ptr-record", arg: must, set: (*reader).pointer},
		{name: "mx-host", short: "m", arg: must, set: (*reader).mail},
		{name: "mx-target", short: "t", arg: must, once: true, set: (*reader).mailTarget},
		{name: "naptr-record", arg: must, set: (*reader).naptr},
		{name: "caa-record", arg: must, set: (*reader).caa},
		{name: "dns-rr", arg: must, set: (*reader).anyRecord},

		// Cache.
		{name: "cache-size", short: "c", arg: must, once: true, set: number(0, 1<<30, func(o *Options) *int { return &o.cacheSize })},
		{name: "no-negcache", short: "N", set: on(func(o *Options) *bool { return &o.noNegative })},
		{name: "neg-ttl", arg: must, once: true, set: checked(0, 1<<31-1), lost: "negative answers without a SOA record are not cached"},
		{name: "max-ttl", arg: must, once: true, set: number(0, 1<<31-1, func(o *Options) *int { return &o.maxTTL })},
		{name: "max-cache-ttl", arg: must, once: true, set: number(0, 1<<31-1, func(o *Options) *int { return &o.maxCache })},
		{name: "min-cache-ttl", arg: must, once: true, set: (*reader).minCache},
		{name: "use-stale-cache", arg: may, once: true, set: (*reader).useStale},
		{name: "cache-rr", arg: must}, // every type is kept
		{name: "no-round-robin", set: on(func(o *Options) *bool { return &o.noRotation })},

		// Filters.
		{name: "domain-needed", short: "D", set: on(func(o *Options) *bool { return &o.plainLocal })},
		{name: "bogus-priv", short: "b", set: on(func(o *Options) *bool { return &o.privateReverse })},
		{name: "stop-dns-rebind", set: func(r *reader, _ setting) error { r.stopRebind = true; return nil }},
		{name: "rebind-localhost-ok", set: on(func(o *Options) *bool { return &o.localhost })},
		{name: "rebind-domain-ok", arg: must, set: (*reader).rebindDomain},
		{name: "filter-A", set: drop("A")},
		{name: "filter-AAAA", set: drop("AAAA")},
		{name: "filter-rr", arg: must, set: (*reader).filter},
		{name: "edns-packet-max", short: "P", arg: must, once: true, set: (*reader).packetSize},

		// Log.
		{name: "log-queries", short: "q", arg: may, set: (*reader).logThem},
		{name: "log-facility", short: "8", arg: must, once: true, set: (*reader).facility},
		{name: "log-async", arg: may, once: true, set: list(1, 1, 1<<30)},
		{name: "log-debug", set: on(func(o *Options) *bool { return &o.Debug })},
	}
	for _, r := range refusals() {
		all = append(all, option{name: r.name, short: r.short, arg: r.arg, why: r.why})
	}
	return all
}

// on sets a switch.
func on(to func(*Options) *bool) func(*reader, setting) error {
	return func(r *reader, _ setting) error {
		*to(&r.Options) = true
		return nil
	}
}
