package dnsmasq_test

// A comparison is a command line and queries. U1 and U2 are upstreams, BAD is an upstream
// that refuses queries, DIR is a directory of files.
type comparison struct {
	args    string
	queries []string
	differ  []difference
}

// A difference is an intended difference between two answers.
type difference struct {
	query, theirs, ours string
	again               string // the second answer of dnsmasq, if it differs
	why                 string
}

// Reasons for several differences.
const (
	noServers = "without an upstream the lookup fails"
	wholly    = "a name with local addresses has no addresses of upstreams: a partial redirection does not work"
	authority = "the denial is authoritative"
	bounds    = "the limits also apply to the first answer"
)

// comparisons are the cases of TestOracle.
var comparisons = []comparison{
	{args: "-h -R -S U1", queries: []string{
		"a.example A", "a.example AAAA", "a.example TXT", "many.example A", "alias.example A", "alias.example CNAME", "mail.example MX",
		"mail.example A", "nowhere.example A", "short.example A", "zero.example A", "long.example A", "A.Example A",
		"servfail.example A", "refused.example A", "printer A", "1.0.0.10.in-addr.arpa PTR", "printer MX",
		"cachesize.bind TXT CH", "auth.bind TXT CH",
	}, differ: []difference{
		{query: "alias.example CNAME", theirs: "NOERROR aa ra; alias.example. 300 CNAME many.example.", ours: "NOERROR ra; alias.example. CNAME many.example.", why: "an upstream's answer is not authoritative"},
	}},
	{args: "-h -R", queries: []string{"a.example A", "a.example MX"}, differ: []difference{
		{query: "a.example A", theirs: "REFUSED ra", ours: "SERVFAIL ra", why: noServers},
		{query: "a.example MX", theirs: "REFUSED ra", ours: "SERVFAIL ra", why: noServers},
	}},
	{args: "-h -R -S BAD -S U1 -o", queries: []string{"a.example A", "nowhere.example A"}},
	{args: "-h -R -S U1 -c 0", queries: []string{"a.example A", "nowhere.example A", "cachesize.bind TXT CH"}},
	{args: "-h -R -S U1 --cache-size=1000 -N", queries: []string{"cachesize.bind TXT CH", "a.example A", "nowhere.example A"}},
	{args: "-h -R -S U1 --no-ident", queries: []string{"cachesize.bind TXT CH", "version.bind TXT CH"}},
	{args: "-h -R -S U1", queries: []string{"nothing.bind TXT CH"}},
	// Selection of upstreams.
	{args: "-h -R -S U1 -S /example/U2 -S /deep.example/U1 -S /x.deep.example/U2", queries: []string{
		"who.org A", "who.example A", "who.other.example A", "who.deep.example A", "who.x.deep.example A", "who.y.x.deep.example TXT", "who.notexample A", "WHO.Deep.Example A",
	}},
	{args: "-h -R -S U1 -S /google.example/www.other.example/U2 -S /www.google.example/#", queries: []string{
		"who.google.example A", "who.www.google.example A", "who.www.other.example A", "who.other.example A", "who.a.www.google.example A",
	}},
	{args: "-h -R -S U1 -S //U2", queries: []string{"who.example A", "printer A", "printer MX", "who A", "nowhere A"}},
	{args: "-h -R -S U1 --local=//", queries: []string{"who.example A", "printer A", "printer MX"}},
	{args: "-h -R -S U1 -S //U2 -D", queries: []string{"who.example A", "printer A", "printer MX"}},
	{args: "-h -R -S U1 -S /.example/U2", queries: []string{"who.example A"}},
	{args: "-h -R -S U1 --local=/lan/ -S /sub.lan/U2 -S /back.lan/#", queries: []string{
		"who.lan A", "lan A", "lan SOA", "who.sub.lan A", "who.back.lan A", "who.x.lan TXT", "who.elan A",
	}},
	{args: "-h -R -S U1 --local=/both.example/ -S /both.example/U2", queries: []string{"both.example A", "who.both.example A"}},
	{args: "-h -R -S U1 --rev-server=10.0.0.0/24,U2 --rev-server=10.1.0.0/20,U2 --rev-server=198.18.1.1,U2 --rev-server=fd00::/9", queries: []string{
		"who.1.0.0.10.in-addr.arpa A", "who.1.1.0.10.in-addr.arpa A", "who.1.0.1.10.in-addr.arpa A", "who.1.15.1.10.in-addr.arpa A", "who.1.16.1.10.in-addr.arpa A",
		"who.1.1.18.198.in-addr.arpa A", "who.d.f.ip6.arpa A", "who.1.d.f.ip6.arpa A", "who.9.d.f.ip6.arpa A",
	}},
	// Filters.
	{args: "-h -R -S U1 -D", queries: []string{"printer A", "printer AAAA", "printer MX", "a.example A"}},
	{args: "-h -R -S U1 -b", queries: []string{"1.0.0.10.in-addr.arpa PTR", "1.1.18.198.in-addr.arpa PTR", "1.1.168.192.in-addr.arpa PTR", "10.in-addr.arpa SOA"}},
	{args: "-h -R -S U1 -b --rev-server=10.0.0.0/8,U2", queries: []string{"1.0.0.10.in-addr.arpa PTR", "who.1.0.0.10.in-addr.arpa A", "1.1.168.192.in-addr.arpa PTR"}},
	{args: "-h -R -S U1 -b -S /in-addr.arpa/U2", queries: []string{"1.0.0.10.in-addr.arpa PTR", "1.1.18.198.in-addr.arpa PTR"}},
	{args: "-h -R -S U1 --stop-dns-rebind --rebind-domain-ok=/trusted.example/", queries: []string{"private.example A", "private6.example AAAA", "inside.trusted.example A", "loopback.example A", "a.example A"}},
	{args: "-h -R -S U1 --stop-dns-rebind --rebind-localhost-ok", queries: []string{"private.example A", "loopback.example A"}},
	{args: "-h -R -S U1 --filter-A", queries: []string{"both.example A", "both.example AAAA", "a.example TXT"}},
	{args: "-h -R -S U1 --filter-AAAA", queries: []string{"both.example A", "both.example AAAA", "nowhere.example AAAA"}},
	{args: "-h -R -S U1 --filter-rr=AAAA", queries: []string{"both.example A", "both.example AAAA"}},
	// Local records.
	{args: "-h -R -S U1 -H DIR/hosts", queries: []string{
		"db A", "db.internal.example A", "web.internal.example A", "web.internal.example AAAA", "www.internal.example A", "DB A", "a.example A",
		"1.0.1.10.in-addr.arpa PTR", "db.internal.example MX", "nowhere.internal.example A",
		"a.example AAAA", "web.internal.example TXT",
	}, differ: []difference{
		{query: "1.0.1.10.in-addr.arpa PTR", theirs: "NOERROR aa ra; 1.0.1.10.in-addr.arpa. 0 PTR db.", ours: "NOERROR aa ra; 1.0.1.10.in-addr.arpa. 0 PTR db.; 1.0.1.10.in-addr.arpa. 0 PTR db.internal.example.", why: "an address has PTR records for all names"},
		{query: "a.example AAAA", theirs: "NOERROR ra; a.example. AAAA 2001:470::1", ours: "NOERROR aa ra", why: wholly},
		{query: "web.internal.example TXT", theirs: `NOERROR ra; web.internal.example. TXT "upstream"`, ours: "NOERROR aa ra", why: wholly},
	}},
	{args: "-h -R -S U1 -H DIR/hosts -E -s internal.example -T 60", queries: []string{"db A", "db.internal.example A", "web.internal.example A"}},
	{args: "-h -R -S U1 --hostsdir=DIR/d --addn-hosts=DIR/hosts", queries: []string{"one.dir.example A", "two.dir.example A", "db A", "2.0.2.10.in-addr.arpa PTR"}},
	{args: "-h -R -S U1 -H DIR/hosts --local=/internal.example/", queries: []string{"db.internal.example A", "db.internal.example AAAA", "db.internal.example MX", "nowhere.internal.example A", "internal.example A"}, differ: []difference{
		{query: "db.internal.example AAAA", theirs: "NOERROR ra", ours: "NOERROR aa ra", why: authority},
		{query: "db.internal.example MX", theirs: "NOERROR ra", ours: "NOERROR aa ra", why: authority},
	}},
	{args: "-h -R -S U1 --host-record=laptop,laptop.home.example,10.4.0.1,fd00::4 --host-record=ttl.home.example,10.4.0.2,77", queries: []string{
		"laptop A", "laptop.home.example A", "laptop.home.example AAAA", "1.0.4.10.in-addr.arpa PTR", "ttl.home.example A",
	}},
	{args: "-h -R -S U1 -H DIR/hosts --host-record=web.internal.example,10.4.0.9", queries: []string{"web.internal.example A"}},
	{args: "-h -R -S U1 -H DIR/hosts -E -s internal.example --host-record=laptop,10.4.0.1", queries: []string{
		"laptop A", "laptop.internal.example A", "1.0.4.10.in-addr.arpa PTR", "db.internal.example A",
	}},
	{args: "-h -R -S U1 -A /redirect.example/10.5.0.1 -A /redirect.example/fd00::5 -H DIR/hosts", queries: []string{
		"redirect.example A", "a.redirect.example A", "a.b.redirect.example AAAA", "x.redirect.example A", "notredirect.example A", "x.redirect.example TXT",
	}, differ: []difference{
		{query: "x.redirect.example TXT", theirs: `NOERROR ra; x.redirect.example. TXT "upstream"`, ours: "NOERROR aa ra", why: wholly},
	}},
	{args: "-h -R -S U1 -A /both.example/10.5.0.1 --host-record=a.example,10.5.0.2", queries: []string{"both.example A", "both.example AAAA", "a.example AAAA", "a.example TXT"}, differ: []difference{
		{query: "both.example AAAA", theirs: "NOERROR ra; both.example. AAAA 2001:470::4", ours: "NOERROR aa ra", why: wholly},
		{query: "a.example AAAA", theirs: "NOERROR ra; a.example. AAAA 2001:470::1", ours: "NOERROR aa ra", why: wholly},
		{query: "a.example TXT", theirs: `NOERROR ra; a.example. TXT "a"`, ours: "NOERROR aa ra", why: wholly},
	}},
	{args: "-h -R -S U1 --cname=out.home.example,a.example", queries: []string{"out.home.example A"}, differ: []difference{
		{query: "out.home.example A", theirs: "NOERROR aa ra; out.home.example. 0 CNAME a.example.", ours: "NOERROR aa ra; a.example. 300 A 198.18.1.1; out.home.example. 0 CNAME a.example.", why: "the target of an alias may be a name of an upstream"},
	}},
	{args: "-h -R -S U1 -A /null.example/# -A /gone.example/", queries: []string{"null.example A", "x.null.example AAAA", "gone.example A", "x.gone.example MX"}},
	{args: "-h -R -S U1 -A /one.example/10.5.0.1 --local=/one.example/", queries: []string{"one.example A", "x.one.example A", "one.example AAAA", "one.example MX"}, differ: []difference{
		{query: "one.example AAAA", theirs: "NOERROR ra", ours: "NOERROR aa ra", why: authority},
		{query: "one.example MX", theirs: "NOERROR ra", ours: "NOERROR aa ra", why: authority},
	}},
	{args: "-h -R -S U1 -A /#/10.5.0.1", queries: []string{"one.example A", "x A", "a.example A"}},
	{args: "-h -R -S U1 --txt-record=a.example,hello,there --txt-record=a.example,more -Y empty.example -Y own.example,x", queries: []string{
		"a.example TXT", "a.example A", "a.example AAAA", "empty.example TXT", "own.example TXT", "own.example A", "x.own.example TXT",
	}, differ: []difference{
		{query: "own.example A", theirs: "NOERROR aa ra", ours: "NOERROR ra", again: "NOERROR ra", why: "the denial is that of the upstream"},
	}},
	{args: "-h -R -S U1 --srv-host=_ldap._tcp.example,ldap.example,389,1,2 -W _ldap._tcp.example,other.example -W _none._tcp.example -s home.example -W _short._tcp,x.example", queries: []string{
		"_ldap._tcp.example SRV", "_none._tcp.example SRV", "_short._tcp.home.example SRV", "_short._tcp SRV",
	}},
	{args: "-h -R -S U1 -m example,mail.example,20 -m second.example,mail.example -m third.example -t mx.example", queries: []string{"example MX", "second.example MX", "third.example MX"}},
	{args: "-h -R -S U1 --ptr-record=9.9.9.10.in-addr.arpa,nine.example --ptr-record=_http._tcp.example,instance.example", queries: []string{"9.9.9.10.in-addr.arpa PTR", "_http._tcp.example PTR"}},
	{args: "-h -R -S U1 --naptr-record=e.example,10,20,u,E2U+sip,!^.*$!sip:x@y!,r.example --caa-record=c.example,0,issue,ca.example --dns-rr=r.example,65280,0a:0b:0c", queries: []string{
		"e.example NAPTR", "c.example CAA", "r.example TYPE65280",
	}},
	{args: "-h -R -S U1 -H DIR/hosts --cname=alias.home.example,web.internal.example --cname=*.wild.example,web.internal.example --cname=two.example,three.example,web.internal.example,99", queries: []string{
		"alias.home.example A", "alias.home.example AAAA", "alias.home.example CNAME", "x.wild.example A", "two.example A", "three.example AAAA",
	}, differ: []difference{
		{query: "x.wild.example A", theirs: "NXDOMAIN ra", ours: "NOERROR aa ra; web.internal.example. 0 A 10.1.0.2; x.wild.example. 0 CNAME web.internal.example.", why: "an alias with * holds for all types"},
	}},
	// TTLs are seen as far as the answers tell them.
	{args: "-R -S U1 -h --conf-file=DIR/conf", queries: []string{"quoted.example TXT", "x.lan A", "a.example A"}},
	{args: "-R -S U1 -h --conf-dir=DIR/cdir,.x", queries: []string{"a.conf.example A", "c.conf.example A"}},
	{args: "-R -S U1 -h --use-stale-cache --min-cache-ttl=100 --max-cache-ttl=200 --max-ttl=50 -P 512 -y -q --dns-forward-max=10", queries: []string{"a.example A", "short.example A", "many.example A", "nowhere.example A"}},
	{args: "-R -S U1 -h --max-ttl=50", queries: []string{"a.example A TTL", "short.example A TTL", "long.example A TTL"}},
	{args: "-R -S U1 -h", queries: []string{"a.example A TTL", "long.example A TTL", "zero.example A TTL"}},
	{args: "-R -S U1 -h --min-cache-ttl=100", queries: []string{"a.example A TTL", "short.example A TTL"}, differ: []difference{
		{query: "short.example A TTL", theirs: "NOERROR ra; short.example. 0 A 198.18.3.1", ours: "NOERROR ra; short.example. 100 A 198.18.3.1", again: "NOERROR ra; short.example. 100 A 198.18.3.1", why: bounds},
	}},
	{args: "-R -S U1 -h --max-cache-ttl=100", queries: []string{"a.example A TTL", "short.example A TTL"}, differ: []difference{
		{query: "a.example A TTL", theirs: "NOERROR ra; a.example. 300 A 198.18.1.1", ours: "NOERROR ra; a.example. 100 A 198.18.1.1", again: "NOERROR ra; a.example. 100 A 198.18.1.1", why: bounds},
	}},
	{args: "-R -S U1 -H DIR/hosts -h --min-cache-ttl=100 --max-ttl=50 -T 500", queries: []string{"db A TTL"}, differ: []difference{
		{query: "db A TTL", theirs: "NOERROR aa ra; db. 500 A 10.1.0.1", ours: "NOERROR aa ra; db. 50 A 10.1.0.1", why: "--max-ttl applies to all answers"},
	}},
}
