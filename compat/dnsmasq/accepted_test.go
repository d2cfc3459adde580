package dnsmasq_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seamark/seamark/compat/dnsmasq"
)

// TestAccepted checks command lines with the real dnsmasq and with Parse, whose results
// must agree.
func TestAccepted(t *testing.T) {
	program := realDnsmasq(t)
	for _, c := range []struct{ args, why string }{ // why the results differ; "" if they must agree
		{"-k --cache-size=1000 --no-negcache --dns-loop-detect --log-facility=- --server=/cluster.local/127.0.0.1#10053", ""},
		{"--keep-in-foreground --cache-size=1000 --no-resolv --server=127.0.0.1#10053", ""},
		{"-c 1 -c 2", ""}, {"--cache-size=x", ""}, {"-c -5", ""}, {"-c 20000", ""}, {"-kc5", ""}, {"-hk", ""},
		{"--port=99999", ""}, {"-S 1.2.3.4#99999", ""}, {"--server=1.2.3.4#", ""}, {"--server=/a/b/1.2.3.4", ""}, {"--server=/a/#", ""}, {"--server=#", ""},
		{"--server=//1.2.3.4", ""}, {"--server=1.2.3.4@127.0.0.1", ""}, {"--server=/.a.b/1.2.3.4", ""}, {"--server=/a", ""}, {"--local=/a/", ""},
		{"-q --log-queries=extra", ""}, {"--log-queries extra", ""}, {"junk", ""}, {"--no-hosts=1", ""}, {"--cac=5", ""}, {"--test=1", ""},
		{"--min-cache-ttl=9999", ""}, {"--neg-ttl=x", ""}, {"--neg-ttl=5", ""}, {"--local-ttl=-1", ""}, {"--local-ttl=60", ""}, {"--fast-dns-retry=x", ""}, {"--fast-dns-retry=100,200", ""}, {"--use-stale-cache=0", ""},
		{"--rev-server=1.2.3.0/20,1.2.3.4", ""}, {"--rev-server=1.2.3.0/24", ""}, {"--rev-server=1.2.3.4,1.1.1.1", ""}, {"--rev-server=fd00::/8,1.1.1.1", ""},
		{"--host-record=a,1.2.3.4,fd00::1,60", ""}, {"--host-record=a", ""}, {"--cname=a,a", ""}, {"--cname=a,b --cname=b,a", ""}, {"--cname=*.a.b,c", ""}, {"--cname=a,b,c,60", ""},
		{"--txt-record=a", ""}, {"--txt-record=a,b,c", ""}, {"--domain=a", ""}, {"--srv-host=a", ""}, {"-W _x._tcp,host,1,2,3,4", ""}, {"-W _x._tcp,host,1,2,3", ""}, {"--mx-host=a,b,x", ""}, {"--mx-host=a,b,5", ""},
		{"--caa-record=a,0,issue", ""}, {"--caa-record=a,0,issue,b", ""}, {"--naptr-record=a,1,2,u,s,r", ""}, {"--ptr-record=a", ""}, {"--ptr-record=a,b", ""}, {"--dns-rr=a,65280,00:01", ""},
		{"--address=/a/b", ""}, {"--address=/a/", ""}, {"--address=1.2.3.4", ""}, {"--address=/#/1.2.3.4", ""}, {"--address=/a/#", ""}, {"--listen-address=foo", ""}, {"--listen-address=127.0.0.1,127.0.0.2", ""},
		{"--conf-file=/nonexist", ""}, {"--conf-dir=/nonexist", ""}, {"--addn-hosts=/a,/b", ""}, {"--resolv-file=/nonexist", ""}, {"-d", ""}, {"--no-daemon", ""}, {"-s", ""}, {"--pid-file", ""}, {"-x", ""}, {"-C", ""},
		{"--query-port=0", ""}, {"--edns-packet-max=100", ""}, {"--rebind-domain-ok=a", ""}, {"--rebind-domain-ok=/a/b/", ""}, {"--server=fe80::1%lo", ""}, {"--interface=lo", ""}, {"--except-interface=lo", ""}, {"--filter-rr=A", ""},

		{"--cache-size 10", "a value may be a separate argument"},
		{"--port=0", "the server would not listen"},
		{"--server=", "it has no effect"},
		{"--local=/", "it has no effect"},
		{"--dns-forward-max=0", "no query would be forwarded"},
		{"--domain=#", "a resolv.conf that has no search path"},
		{"--domain=a,10.0.0.0/8", "DHCP"},
		{"-m a", "the target would be the machine's name"},
		{"-S no.such.host.invalid", "the hostname is looked up repeatedly"},
		{"-n -r /a -r /b", "all files are followed"},
		{"--server=1.2.3.4@lo", "an interface"},
		{"--server=1.2.3.4@127.0.0.1#5", "a source port"},
		{"--server=/*a.b/1.2.3.4", "a part of a label"},
		{"--server=/*.a.b/1.2.3.4", "only names below the domain"},
		{"--address=/a/1.2.3.4 --server=/b.a/1.2.3.4", "an exception from an address"},
		{"--filter-rr=MX", "another type"},
		{"--dnssec --trust-anchor=.,20326,8,2,E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D", "no validation"},
		{"-F 10.0.0.1,10.0.0.9", "DHCP"},
		{"--add-subnet=24 --add-mac", "the client address is not sent"},
		{"--ipset=/a/b", "no sets"},
	} {
		theirs := exec.CommandContext(t.Context(), program, append([]string{"--test", "-C", "/dev/null"}, strings.Fields(c.args)...)...).Run()
		o, ours := dnsmasq.Parse(append([]string{"--test", "-C", "/dev/null"}, strings.Fields(c.args)...))
		if ours == nil {
			_, ours = o.Corefile(dnsmasq.Environment{Interfaces: []string{"lo", "eth0"}})
		}
		switch same := (theirs == nil) == (ours == nil); {
		case !same && c.why == "":
			t.Errorf("%s: got error %v, dnsmasq has %v", c.args, ours, theirs)
		case same && c.why != "" && c.why != "a resolv.conf that has no search path": // depends on the machine's resolv.conf
			t.Errorf("%s: got the result of dnsmasq, want another: %s", c.args, c.why)
		}
	}
}
