package dnsmasq

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
)

// folder has configuration files by path.
type folder map[string]string

func (f folder) text(path string) ([]byte, error) {
	if text, ok := f[path]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

func (f folder) list(dir string) (names []string, err error) {
	for path := range f {
		if name, ok := strings.CutPrefix(path, dir+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names == nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	return names, nil
}

var testEnvironment = Environment{Interfaces: []string{"lo", "eth0", "eth1"}}

// lines returns the lines of the Corefile for args, without closing braces.
func lines(t *testing.T, args []string, f files, at Environment) (out []string) {
	t.Helper()
	o, err := parse(args, f)
	if err != nil {
		t.Errorf("parse(%q): got error %v, want none", args, err)
		return nil
	}
	text, err := o.Corefile(at)
	if err != nil {
		t.Errorf("%q: Corefile: got error %v, want none", args, err)
		return nil
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), " {"); line != "}" {
			out = append(out, line)
		}
	}
	return out
}

// baseArgs are options of every command line of TestOptions.
var baseArgs = []string{"-h", "-R"}

// The lines that an option adds to the Corefile.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		adds []string
	}{
		{"-p 5353", []string{".:5353"}},
		{"-p5353", []string{".:5353"}},
		{"--port=5353", []string{".:5353"}},
		{"--port 5353", []string{".:5353"}},
		{"-kp5353", []string{".:5353"}},
		{"-a 127.0.0.1,::1 --listen-address=10.0.0.1 -z", []string{"bind 127.0.0.1 ::1 10.0.0.1"}},
		{"-i eth0", []string{"bind eth0 lo"}},
		{"-i eth*,lo", []string{"bind eth0 eth1 lo"}},
		{"-I eth1", []string{"bind lo eth0"}},
		{"-i eth* -I eth0", []string{"bind eth1 lo"}},
		{"-i eth0 -a 10.0.0.1 -I eth1 -I nope0", []string{"bind 10.0.0.1 eth0 lo", "except eth1"}},
		{"-k -d -u root -g root --bind-dynamic", nil},
		{"-S 192.0.2.1", []string{"forward . 192.0.2.1:53", "failover SERVFAIL REFUSED"}},
		{"--server=192.0.2.1#5353 -S 192.0.2.2#", []string{"forward . 192.0.2.1:5353 192.0.2.2:53", "failover SERVFAIL REFUSED"}},
		{"-S 2001:db8::1#99 -S fe80::1%eth0", []string{"forward . [2001:db8::1]:99 [fe80::1%eth0]:53", "failover SERVFAIL REFUSED"}},
		{"-S ns.Example.#99", []string{"forward . ns.example:99", "failover SERVFAIL REFUSED"}},
		{"-S 192.0.2.1@192.0.2.9", []string{"forward . 192.0.2.1:53", "failover SERVFAIL REFUSED", "source_address 192.0.2.9"}},
		{"-S /Acme.Local/1.2.3.4 -S /x/a.acme.local/5.6.7.8 -S /acme.local/1.2.3.5", []string{
			"forward a.acme.local 5.6.7.8:53", "failover SERVFAIL REFUSED", "forward acme.local 1.2.3.4:53 1.2.3.5:53", "failover SERVFAIL REFUSED", "forward x 5.6.7.8:53", "failover SERVFAIL REFUSED",
		}},
		{"--server /acme.local/1.2.3.4", []string{"forward acme.local 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"-S/#/1.2.3.4", []string{"forward . 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"-S # -S 1.2.3.4", []string{"forward . 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"-S 1.2.3.4 -S /a.b/9.9.9.9 -S /x.a.b/#", []string{"forward a.b 9.9.9.9:53", "failover SERVFAIL REFUSED", "except x.a.b", "forward . 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"--local=/lan/ -S /home.arpa/ -S /a.lan/1.2.3.4", []string{"screen", "local home.arpa lan", "except a.lan", "forward a.lan 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"--rev-server=10.1.2.0/23,1.2.3.4#5", []string{"forward 2.1.10.in-addr.arpa 1.2.3.4:5", "failover SERVFAIL REFUSED", "forward 3.1.10.in-addr.arpa 1.2.3.4:5", "failover SERVFAIL REFUSED"}},
		{"--rev-server=2001:db8::/32,1.2.3.4", []string{"forward 8.b.d.0.1.0.0.2.ip6.arpa 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"--rev-server=10.0.0.1,1.2.3.4", []string{"forward 1.0.0.10.in-addr.arpa 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"--rev-server=10.0.0.0/8", []string{"screen", "local 10.in-addr.arpa"}},
		{"-S 1.2.3.4 -o --dns-forward-max=150", []string{"forward . 1.2.3.4:53", "policy sequential", "max_concurrent 150", "failover SERVFAIL REFUSED"}},
		{"-S 1.2.3.4 -0 7", []string{"forward . 1.2.3.4:53", "max_concurrent 7", "failover SERVFAIL REFUSED"}},
		{"--dns-loop-detect", []string{"loop"}},
		{"-c 1000 -N", []string{"cache", "success 1000 2147483647 0", "denial 0 2147483647 0", "servfail 0"}},
		{"-c1001", []string{"cache", "success 501 2147483647 0", "denial 500 2147483647 0", "servfail 0"}},
		{"--max-cache-ttl=600 --min-cache-ttl=60", []string{"success 75 600 60", "denial 75 600 60"}},
		{"--max-cache-ttl=60 --min-cache-ttl=600", []string{"success 75 600 600", "denial 75 600 600"}},
		{"--max-ttl=60", []string{"rewrite continue ttl regex .* -60"}},
		{"--use-stale-cache", []string{"serve_stale 86400s"}},
		{"--use-stale-cache=0", []string{"serve_stale 31536000s"}},
		{"--use-stale-cache=60", []string{"serve_stale 60s"}},
		{"--cache-rr=ANY --proxy-dnssec --port-limit=2 --log-async=10", nil},
		{"-H /dns/key --addn-hosts=/a,/b --hostsdir=/d", []string{"hosts /dns/key", "file /a", "file /b", "file /d", "ttl 0", "fallthrough"}},
		{"-H /dns/key -E -s example.org -T 60 -y", []string{"hosts /dns/key", "domain example.org", "localise", "ttl 60", "fallthrough"}},
		{"-H /dns/key -s example.org", []string{"hosts /dns/key", "ttl 0", "fallthrough"}},
		{"-H '/a#b'", []string{`hosts "'/a#b'"`, "ttl 0", "fallthrough"}},
		{"-H /k --host-record=a,a.b,10.0.0.1,fd00::1", []string{"hosts /k", "10.0.0.1 a a.b", "fd00::1 a a.b", "ttl 0", "fallthrough"}},
		{"-H /k -E -s d --host-record=a,a.b,10.0.0.1", []string{"hosts /k", "10.0.0.1 a. a.b.", "domain d", "ttl 0", "fallthrough"}},
		{"--host-record=a,a.b,10.0.0.1,60 --host-record=c,10.0.0.1", []string{"records", "a 60 A 10.0.0.1", "a.b 60 A 10.0.0.1", "1.0.0.10.in-addr.arpa 60 PTR a.", "c 0 A 10.0.0.1"}},
		{"-A /a.b/1.2.3.4 -A /a.b/::1", []string{"records", "a.b 0 A 1.2.3.4", "*.a.b 0 A 1.2.3.4", "a.b 0 AAAA ::1", "*.a.b 0 AAAA ::1"}},
		{"-A /#/1.2.3.4 -A 1.2.3.5", []string{"records", "* 0 A 1.2.3.4", "* 0 A 1.2.3.5"}},
		{"-A /a.b/#", []string{"records", "a.b 0 A 0.0.0.0", "*.a.b 0 A 0.0.0.0", "a.b 0 AAAA ::", "*.a.b 0 AAAA ::"}},
		{"-A /a.b/", []string{"screen", "local a.b"}},
		{"--cname=a,*.b,c.d,60", []string{"records", "a 60 CNAME c.d.", "*.b 60 CNAME c.d."}},
		{"--ptr-record=x.y,z", []string{"records", "x.y 0 PTR z."}},
		{"-Y a.b,hello", []string{"rewrite continue rcode exact a.b. NXDOMAIN NOERROR", "template IN TXT a.b", "match ^a[.]b[.]$", `answer "a.b. 0 IN TXT \"hello\""`}},
		{`-Y a,{{x}},",\,é`, []string{"rewrite continue rcode exact a. NXDOMAIN NOERROR", "template IN TXT a", "match ^a[.]$", `answer "a. 0 IN TXT \"\123\123x\125\125\" \"\034\" \"\092\" \"\195\169\""`}},
		{"-W _s._tcp,h,1,2,3 -s d.e", []string{"rewrite continue rcode exact _s._tcp.d.e. NXDOMAIN NOERROR", "template IN SRV _s._tcp.d.e", "match ^_s[.]_tcp[.]d[.]e[.]$", `answer "_s._tcp.d.e. 0 IN SRV 2 3 1 h."`}},
		{"-m a,b,5 -m a -t c", []string{"rewrite continue rcode exact a. NXDOMAIN NOERROR", "template IN MX a", "match ^a[.]$", `answer "a. 0 IN MX 5 b."`, `answer "a. 0 IN MX 1 c."`}},
		{"--naptr-record=a,1,2,u,s,!^.*$!x!", []string{"rewrite continue rcode exact a. NXDOMAIN NOERROR", "template IN NAPTR a", "match ^a[.]$", `answer "a. 0 IN NAPTR 1 2 \"u\" \"s\" \"!^.*$!x!\" ."`}},
		{"--caa-record=a,0,issue,b", []string{"rewrite continue rcode exact a. NXDOMAIN NOERROR", "template IN CAA a", "match ^a[.]$", `answer "a. 0 IN CAA 0 issue \"b\""`}},
		{"--dns-rr=a,65280,0a:0b", []string{"rewrite continue rcode exact a. NXDOMAIN NOERROR", "template IN TYPE65280 a", "match ^a[.]$", `answer "a. 0 IN TYPE65280 \# 2 0a0b"`}},
		{"-D", []string{"screen", "plain_names"}},
		{"-b -S /in-addr.arpa/1.2.3.4", []string{"screen", "except in-addr.arpa", "private_reverse", "forward in-addr.arpa 1.2.3.4:53", "failover SERVFAIL REFUSED"}},
		{"--stop-dns-rebind --rebind-domain-ok=/a/b.c/ --rebind-domain-ok=d --rebind-localhost-ok", []string{"screen", "rebind a b.c d", "rebind_localhost_ok"}},
		{"--rebind-localhost-ok --rebind-domain-ok=a", nil},
		{"--filter-A --filter-AAAA --filter-rr=AAAA,1", []string{"screen", "drop A AAAA"}},
		{"-P 4096", []string{"bufsize 4096"}},
		{"-P 100", []string{"bufsize 512"}},
		{"-q -8 -", []string{"log"}},
		{"--log-queries=extra --log-facility=-", []string{"log"}},
		{"--log-debug", []string{"debug"}},
		{"-C /conf", []string{"forward . 1.2.3.4:53", "failover SERVFAIL REFUSED", "policy sequential"}},
		{"-C /dev/null", nil},
		{"-7 /dir,*.conf", []string{"loop"}},
		{"-7 /dir,.conf,.other", []string{"log"}},
		{"-7 /dir", []string{"loop", "log"}},
	} {
		f := folder{"/conf": "server=1.2.3.4\nstrict-order\n", "/dir/a.conf": "dns-loop-detect", "/dir/b": "log-queries", "/dir/.c": "?", "/dir/d~": "?", "/dir/#e#": "?"}
		args := append(slices.Clone(baseArgs), strings.Fields(c.args)...)
		without, with := lines(t, baseArgs, f, testEnvironment), lines(t, args, f, testEnvironment)
		left := slices.Clone(with)
		for _, line := range without {
			if i := slices.Index(left, line); i >= 0 && !slices.Contains(c.adds, line) {
				left = slices.Delete(left, i, i+1)
			}
		}
		common := func(line string) bool { return line == "fallthrough" } // in several directives
		left = slices.DeleteFunc(left, common)
		slices.Sort(left)
		adds := slices.DeleteFunc(slices.Clone(c.adds), common)
		slices.Sort(adds)
		if !slices.Equal(left, adds) {
			t.Errorf("%s: got additional lines\n%s\nwant\n%s", c.args, strings.Join(left, "\n"), strings.Join(adds, "\n"))
		}
	}
}

// The line that an option removes from the Corefile.
func TestOptionsRemoveLine(t *testing.T) {
	for _, c := range []struct{ args, gone string }{
		{"-h", "hosts /etc/hosts"},
		{"-R", "forward . /etc/resolv.conf"},
		{"--no-ident", "statistics"},
		{"--no-round-robin", "loadbalance"},
		{"-c 0", "cache"},
		{"-r /x", "forward . /etc/resolv.conf"},
	} {
		if all := lines(t, nil, folder{}, testEnvironment); !slices.Contains(all, c.gone) {
			t.Errorf("no options: got %q, want the line %s", all, c.gone)
		}
		if all := lines(t, strings.Fields(c.args), folder{}, testEnvironment); slices.Contains(all, c.gone) {
			t.Errorf("%s: got %q, want no line %s", c.args, all, c.gone)
		}
	}
	if all := lines(t, []string{"-r", "/x", "--resolv-file=/y", "-S", "1.2.3.4"}, folder{}, testEnvironment); !slices.Contains(all, "forward . 1.2.3.4:53 /x /y") {
		t.Errorf("resolv files and a server: got %q, want them in one forward", all)
	}
}

func TestInvalidOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--nonsense", "--nonsense: unknown option"},
		{"--cach-size=1", `--cach-size: unknown option; did you mean "cache-size"?`},
		{"-ö", "-\xc3: unknown option"},
		{"junk", `"junk" is not an option: write --OPTION=VALUE`},
		{"--log-queries extra", `"extra" is not an option`},
		{"-- -k", `"-k" is not an option`},
		{"--cache-size", "--cache-size: want a value"},
		{"-c", "-c: want a value"},
		{"--no-hosts=1", `--no-hosts: want no value, got "1"`},
		{"-c 1 -c 2", "-c: given twice"},
		{"--cache-size=x", `--cache-size: want a number of 0..1073741824, got "x"`},
		{"-c +5", `-c: want a number of`},
		{"--port=0", "--port: want a number of 1..65535, got \"0\""},
		{"--server=", "--server: want a server, or /DOMAIN/"},
		{"--server=/", `want /DOMAIN/ADDRESS, got "/"`},
		{"--server=/a", `want /DOMAIN/ADDRESS, got "/a"`},
		{"--server=/a..b/1.2.3.4", `want a domain name, got "a..b"`},
		{"--server=/a/1.2.3.4.5", `want an IP address or the name of a host, got "1.2.3.4.5"`},
		{"--server=1.2.3.4:53", `want an IP address or the name of a host, got "1.2.3.4:53"`},
		{"--server=1.2.3.4#99999", `port: want a number of 1..65535, got "99999"`},
		{"--server=/*x.y/1.2.3.4", "not served: a domain that begins with *"},
		{"--server=1.2.3.4@eth0", "not served: the source interface \"eth0\""},
		{"--server=1.2.3.4@1.2.3.5#6", "not served: the source port \"6\""},
		{"--server=1.2.3.4@::1", "::1 cannot be the source address of queries to 1.2.3.4:53"},
		{"-S 1.2.3.4@1.1.1.1 -S 1.2.3.5", "not served: servers with different source addresses"},
		{"-S /a/1.2.3.4 -S /a/#", "a has servers of its own and those of the root"},
		{"--rev-server=1.2.3.4/0,1.1.1.1", "want IP/BITS,SERVER"},
		{"--rev-server=1.2.3.x,1.1.1.1", "want IP/BITS,SERVER"},
		{"--address=/a/b", `want an IP address or #, got "b"`},
		{"--address=//1.2.3.4", "not served: an address for all names without a dot"},
		{"--address=", "want /DOMAIN/ADDRESS, got nothing"},
		{"-A /a/1.2.3.4 -S /b.a/5.6.7.8", "-A: not served: an address for a, and other upstreams for b.a below it"},
		{"-A /#/1.2.3.4 --local=/lan/", "-A: not served: an address for ., and other upstreams for lan below it"},
		{"--host-record=a", "want NAME,ADDRESS"},
		{"--host-record=1.2.3.4", "want NAME,ADDRESS"},
		{"--cname=a", "want ALIAS,TARGET"},
		{"--cname=a,a", "a leads to itself"},
		{"--cname=a,b --cname=b,a", "--cname: a leads to itself"},
		{"--cname=a,b --cname=a,c", "--cname: a is given twice"},
		{"--srv-host=a,b,c", `want a number of 0..65535, got "c"`},
		{"--mx-host=a", "--mx-host: a has no target"},
		{"--mx-host=a,b,c,d", "want NAME,TARGET,PREFERENCE"},
		{"--naptr-record=a,1,2", "want NAME,ORDER"},
		{"--caa-record=a,0,issue", "want NAME,FLAGS,TAG,VALUE"},
		{"--dns-rr=a,65280,0x", "want bytes as hexadecimal digits"},
		{"--domain=#", "the search path of resolv.conf is not used"},
		{"--domain=a,10.0.0.0/8", "not served: a domain for some addresses only"},
		{"--rebind-domain-ok=//", "want DOMAIN or /DOMAIN/DOMAIN/"},
		{"--filter-rr=MX", "not served: only A and AAAA"},
		{"--listen-address=foo", `want an IP address, got "foo"`},
		{"--interface={}", "want the name of an interface"},
		{"-I *", "no interface is left to listen on"},
		{"--log-queries=much", `want nothing, or extra, got "much"`},
		{"--fast-dns-retry=x", "want a number"},
		{"--fast-dns-retry=1,2,3", "want at most 2 numbers"},
		{`--addn-hosts=a"b`, "want a path without"},
		{"--addn-hosts={$HOME}", "want a path without"},
		{"--addn-hosts=a,", "want a path, got nothing"},
		{"--txt-record=a,\x01", "without control characters"},
		{"--conf-file=/nowhere", "open /nowhere: file does not exist"},
		{"--conf-file=-", "not read from standard input"},
		{"--conf-dir=/nowhere", "open /nowhere: file does not exist"},
		{"--conf-file=/bad", "/bad:2: nonsense: unknown option"},
		{"--conf-file=/bad", "/bad:4: cache-size: given twice"},
		{"--conf-file=/bad", `/bad:5: quotes: want a " at the end`},
		{"--conf-file=/bad", "/bad:6: dnssec: not served: answers are not validated"},
		{"--conf-file=/bad", "/bad:7: txt-record: want text without control characters"},
		{"--conf-file=/bad", "/bad:8: cname: b leads to itself"},
		{"--conf-file=/self", "/self: more than 1000 configuration files"},
	} {
		f := folder{
			"/bad":  "# comment\nnonsense\ncache-size=1 # comment\ncache-size = 2\ntxt-record=\"a\ndnssec\ntxt-record=a,\x01\ncname=b,b\n",
			"/self": "conf-file=/self\n",
		}
		o, err := parse(strings.Fields(c.args), f)
		if err == nil {
			_, err = o.Corefile(testEnvironment)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error\n%v\nwant %s", c.args, err, c.want)
		}
	}
}

// All errors are reported at once, one in a line.
func TestInvalidOptionsTogether(t *testing.T) {
	_, err := parse([]string{"--nonsense", "-c", "x", "--dnssec", "--server=/a", "-F", "10.0.0.1,10.0.0.9", "-hk"}, folder{defaultConfig: "bad\n"})
	if err == nil || strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("got error\n%v\nwant six lines", err)
	}
}

// A value in a file overrides the command line. The default file is read unless another
// one is given.
func TestConfigFiles(t *testing.T) {
	f := folder{defaultConfig: "port = 54\n\n  # nothing\nserver=/a.b/\"1.2.3.4\"#5 # five\n", "/other": "port=55\n"}
	for _, c := range []struct {
		args string
		port int
	}{{"", 54}, {"-p 99", 54}, {"-p 99 -C /other", 55}, {"-p 99 --conf-file=", 99}} {
		if o, err := parse(strings.Fields(c.args), f); err != nil || o.Port != c.port {
			t.Errorf("%s: got port %d, error %v, want %d", c.args, o.Port, err, c.port)
		}
	}
	if all := lines(t, baseArgs, f, testEnvironment); !slices.Contains(all, "forward a.b 1.2.3.4:5") {
		t.Errorf("quoted server in a file: got %q, want forward a.b 1.2.3.4:5", all)
	}
}

// The note about a log facility is true for each command that serves the Corefile: dnsmasq-nanny logs to standard
// error, and serve to standard output.
func TestNotesLogFacility(t *testing.T) {
	for _, args := range []string{"--log-facility=/var/log/x", "-8 /var/log/x", "--log-facility=DAEMON"} {
		o, err := parse(strings.Fields(args), folder{})
		const want = ": the log goes to the output of the process, neither to a file nor to syslog"
		if err != nil || len(o.Notes) != 1 || !strings.HasSuffix(o.Notes[0], want) {
			t.Errorf("%s: got notes %q, error %v, want one that ends with %q", args, o.Notes, err, want)
		}
	}
}

// Each option that is ignored or works differently has one note.
func TestNotes(t *testing.T) {
	o, err := parse(strings.Fields("--all-servers --all-servers --no-poll --min-cache-ttl=9999 -8 /var/log/x -Q 5 -x /run/pid --log-facility=-"), folder{})
	if err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("--log-facility twice: got error %v, want given twice", err)
	}
	o, err = parse(strings.Fields("--all-servers --all-servers --no-poll --min-cache-ttl=9999 -8 /var/log/x -Q 5 -x /run/pid"), folder{})
	if err != nil || len(o.Notes) != 5 || o.PIDFile != "/run/pid" {
		t.Errorf("got notes %q, PID file %q, error %v, want 5 notes, /run/pid and none", o.Notes, o.PIDFile, err)
	}
	for _, args := range []string{"-v", "--version", "-w", "--help", "--test"} {
		if o, err := parse([]string{args}, folder{}); err != nil || !o.Version && !o.Help && !o.Test {
			t.Errorf("%s: got %+v, error %v, want an option that prints and exits", args, o, err)
		}
	}
}

// The command lines of old and new manifests of kube-dns.
func TestManifestCommandLines(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--keep-in-foreground --cache-size=1000 --no-resolv --server=127.0.0.1#10053", []string{"success 500 2147483647 0", "hosts /etc/hosts", "forward . 127.0.0.1:10053"}},
		{"--cache-size=1000 --server=/cluster.local/127.0.0.1#10053 --server=/in-addr.arpa/127.0.0.1#10053 --server=/ip6.arpa/127.0.0.1#10053", []string{
			"hosts /etc/hosts", "forward cluster.local 127.0.0.1:10053", "forward in-addr.arpa 127.0.0.1:10053", "forward ip6.arpa 127.0.0.1:10053", "forward . /etc/resolv.conf",
		}},
		{"-k --cache-size=1000 --no-negcache --dns-loop-detect --log-facility=- --server=/cluster.local/127.0.0.1#10053 --server=/in-addr.arpa/127.0.0.1#10053 --server=/ip6.arpa/127.0.0.1#10053", []string{
			"success 1000 2147483647 0", "denial 0 2147483647 0", "hosts /etc/hosts", "loop", "forward cluster.local 127.0.0.1:10053", "forward in-addr.arpa 127.0.0.1:10053", "forward ip6.arpa 127.0.0.1:10053", "forward . /etc/resolv.conf",
		}},
		{"-k --cache-size=1000 --log-facility=- --addn-hosts=/dns/key --server=/cluster.local/127.0.0.1#10053", []string{"hosts /etc/hosts", "file /dns/key", "forward cluster.local 127.0.0.1:10053"}},
	} {
		o, err := parse(strings.Fields(c.args), folder{})
		if err != nil || len(o.Notes) > 0 {
			t.Errorf("%s: got error %v, notes %q, want none", c.args, err, o.Notes)
		}
		at := testEnvironment
		at.ConfigMap, at.Resolver, at.Period, at.Lameduck = "/etc/k8s/dns/dnsmasq-nanny", "127.0.0.1:10053", 10e9, 5e9
		all := lines(t, strings.Fields(c.args), folder{}, at)
		next := 0
		for _, line := range all {
			if next < len(c.want) && line == c.want[next] {
				next++
			}
		}
		if next < len(c.want) || !slices.Contains(all, "kubedns_config /etc/k8s/dns/dnsmasq-nanny") || !slices.Contains(all, "period 10s") ||
			!slices.Contains(all, "resolver 127.0.0.1:10053") || !slices.Contains(all, "lameduck 5s") || slices.Contains(all, "default none") {
			t.Errorf("%s: got\n%s\nwant in this order %q, and a kubedns_config", c.args, strings.Join(all, "\n"), c.want)
		}
	}
	at := Environment{ConfigMap: "/c"}
	if all := lines(t, []string{"-R"}, folder{}, at); !slices.Contains(all, "default none") {
		t.Errorf("-R with a ConfigMap: got %q, want default none", all)
	}
}

// The reference page has each option in the section of its treatment.
func TestReferenceOptions(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/dnsmasq-nanny.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(page), "\n### ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[title] = text
	}
	seen := map[string]bool{}
	for title, want := range map[string]string{"Served": "served", "Accepted without effect": "note", "Refused": "refused"} {
		if sections[title] == "" {
			t.Errorf("dnsmasq-nanny.md has no section %s", title)
		}
		for _, item := range regexp.MustCompile("(?m)^- ((?:`[^`]+`,?\\s+)*`[^`]+`):").FindAllStringSubmatch(sections[title], -1) {
			for _, span := range spans(t, item[1]) {
				name, _, _ := strings.Cut(span[2:], "=")
				seen[name] = true
				f := folder{"/etc/dnsmasq.d/a": "", "/etc/my.conf": ""}
				o, err := parse([]string{span}, f)
				got := "served"
				switch {
				case err != nil && strings.Contains(err.Error(), "not served: "):
					got = "refused"
				case err != nil:
					got = err.Error()
				case len(o.Notes) > 0:
					got = "note"
				}
				if _, err := o.Corefile(testEnvironment); err != nil {
					t.Errorf("%s: Corefile: got error %v, want none", span, err)
				}
				if got != want {
					t.Errorf("%s: section %s, got %s", span, title, got)
				}
			}
		}
	}
	for _, o := range new(reader).options() {
		if !seen[o.name] {
			t.Errorf("dnsmasq-nanny.md has no --%s", o.name)
		}
		if !strings.Contains(Help(), "--"+o.name) {
			t.Errorf("the help has no --%s", o.name)
		}
	}
}

// spans returns the long options of an item of the page, each with a value if it needs one. A name with "*" stands for
// all options that match.
func spans(t *testing.T, item string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("`(--[^`]+)`").FindAllStringSubmatch(item, -1) {
		if strings.Contains(m[1], "=") {
			all = append(all, m[1])
			continue
		}
		count := len(all)
		for _, o := range new(reader).options() {
			if ok, err := filepath.Match(m[1], "--"+o.name); err != nil || !ok {
				continue
			}
			span := "--" + o.name
			if o.arg == required {
				span += "=VALUE"
			}
			all = append(all, span)
		}
		if len(all) == count {
			t.Errorf("dnsmasq-nanny.md: %s: got no such option", m[1])
		}
	}
	return all
}

// Names and letters of options are unique.
func TestOptionNamesUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range new(reader).options() {
		if seen[o.name] || o.short != "" && seen[o.short] {
			t.Errorf("--%s or -%s is listed twice", o.name, o.short)
		}
		seen[o.name], seen[o.short] = true, true
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"-k\n--cache-size=1000\n--server=/cluster.local/127.0.0.1#10053", "--txt-record=a,\"{$X}\\\n-S\n//1.2.3.4", "--address=/#/::\n-A/a/",
		"--rev-server=fd00::/9,1.2.3.4", "--conf-file=/f\nserver=1.2.3.4 # x\ntxt-record=a,\"b\\\",c\"", "-i*\n-I{\n-H/a b", "--dns-rr=a,1,00\n--caa-record=a,0,b,}",
		"--host-record=a,1.2.3.4,5\n--cname=*.a,b,6\n--naptr-record=a,1,2,{,},\"", "--max-ttl=1\n-b\n-D\n--stop-dns-rebind\n--filter-A\n-y\n-E\n-sx.y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		o, err := parse(args, folder{"/f": text})
		if err != nil {
			return
		}
		out, err := o.Corefile(Environment{ConfigMap: "/c", Period: 10e9, Interfaces: []string{"lo"}})
		if err != nil {
			return
		}
		servers, err := corefile.Parse("Corefile", []byte(out))
		if err != nil || len(servers) == 0 || len(servers) > 2 {
			t.Fatalf("%q: got %d server blocks, error %v\n%s", args, len(servers), err, out)
		}
		for _, s := range servers {
			for _, d := range s.Directives {
				if !slices.Contains(strings.Fields("view bind bufsize lameduck debug errors log chaos loadbalance rewrite cache header template hosts records screen loop kubedns_config forward"), d.Text) {
					t.Fatalf("%q: got the directive %q\n%s", args, d.Text, out)
				}
			}
		}
	})
}
