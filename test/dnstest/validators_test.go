package dnstest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/debian"
)

// writeKey writes the files of a new key pair, and returns the DNSKEY record and the
// path of the files without extension.
func writeKey(t *testing.T, dir, zone string, flags uint16, algorithm uint8, bits int) (*dns.DNSKEY, string) {
	t.Helper()
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600}, Flags: flags, Protocol: 3, Algorithm: algorithm}
	private, err := key.Generate(bits)
	if err != nil {
		t.Fatalf("generating a key: %v", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("K%s+%03d+%05d", zone, algorithm, key.KeyTag()))
	writeFile(t, path+".key", key.String()+"\n")
	writeFile(t, path+".private", key.PrivateKeyString(private))
	return key, path
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveSigned starts a server.
func serveSigned(t *testing.T, text, objectsText string) netip.AddrPort {
	t.Helper()
	source := newFolder(t)
	docs, err := objects([]byte(objectsText))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range docs {
		if err := source.Apply(o); err != nil {
			t.Fatal(err)
		}
	}
	v := &variant{source: source, log: new(chaintest.Log)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the server:\n%s", v.log)
		}
	})
	at, err := serve(t, text, v)
	if err != nil {
		t.Fatalf("starting the server: %v", err)
	}
	return at
}

// An unbound is a validating resolver that sends its queries to a server.
type unbound struct{ at string }

// unusedAddress returns an address of the loopback network. Its port is not one of those
// that the system chooses for other sockets, so that none has it before a program starts.
func unusedAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	unique := conn.LocalAddr().(*net.UDPAddr).Port // differs from the last ones
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 78, byte(unique >> 8), byte(unique)}), 1053)
}

// startUnbound starts Unbound with keys as its trust anchors. It sends queries for
// zones to the servers that at has for them.
func startUnbound(t *testing.T, keys []*dns.DNSKEY, at map[string]netip.AddrPort) *unbound {
	t.Helper()
	program := debian.Program(t, "unbound")
	own := unusedAddress(t)
	dir := t.TempDir()
	var b strings.Builder
	fmt.Fprintf(&b, "server:\n interface: %s\n port: %d\n username: \"\"\n chroot: \"\"\n directory: %q\n pidfile: \"\"\n", own.Addr(), own.Port(), dir)
	b.WriteString(" use-syslog: no\n do-daemonize: no\n num-threads: 1\n do-not-query-localhost: no\n unblock-lan-zones: yes\n insecure-lan-zones: yes\n")
	// On a busy machine a reply may take longer than the 376 ms after which Unbound asks again,
	// and gives up a server that it does not know yet.
	b.WriteString(" unknown-server-time-limit: 10000\n infra-keep-probing: yes\n log-servfail: yes\n")
	b.WriteString(" val-log-level: 2\n module-config: \"validator iterator\"\n access-control: 127.0.0.0/8 allow\n qname-minimisation: no\n")
	for _, key := range keys {
		fmt.Fprintf(&b, " trust-anchor: \"%s\"\n", strings.ReplaceAll(key.ToDS(dns.SHA256).String(), "\t", " "))
	}
	b.WriteString("remote-control:\n control-enable: no\n")
	for zone, addr := range at {
		fmt.Fprintf(&b, "stub-zone:\n name: %q\n stub-addr: %s@%d\n", zone, addr.Addr(), addr.Port())
	}
	writeFile(t, filepath.Join(dir, "unbound.conf"), b.String())
	var log chaintest.Log
	cmd := exec.Command(program, "-c", filepath.Join(dir, "unbound.conf"))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Unbound:\n%s", &log)
		}
	})
	u := &unbound{own.String()}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := u.ask("ready.invalid.", dns.TypeA); err == nil {
			return u
		}
		if time.Now().After(end) {
			t.Fatalf("Unbound does not answer on %s within a minute", u.at)
		}
	}
}

func (u *unbound) ask(name string, t uint16) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(name, t)
	m.SetEdns0(1232, true)
	m.RecursionDesired = true
	c := &dns.Client{Timeout: 20 * time.Second}
	r, _, err := c.Exchange(m, u.at)
	if err == nil && r.Truncated {
		c.Net = "tcp"
		r, _, err = c.Exchange(m, u.at)
	}
	return r, err
}

// A signedQuery is a query whose answer must validate.
type signedQuery struct {
	name, t string
	rcode   string // as Unbound returns it: it keeps NOERROR for denied names
	count   int    // of the records in the answer, without signatures
	// insecure expects an answer that is proved to be unsigned.
	insecure bool
}

// check compares the answers of Unbound with the expected ones.
func (u *unbound) check(t *testing.T, queries []signedQuery) {
	t.Helper()
	for _, q := range queries {
		r, err := u.ask(q.name, dns.StringToType[q.t])
		if err != nil {
			t.Errorf("Unbound: %s %s: %v", q.name, q.t, err)
			continue
		}
		count := 0
		for _, rr := range r.Answer {
			if rr.Header().Rrtype != dns.TypeRRSIG {
				count++
			}
		}
		if dns.RcodeToString[r.Rcode] != q.rcode || count != q.count || r.AuthenticatedData == q.insecure {
			t.Errorf("Unbound: %s %s: got\n%v\nwant %s with %d records, authenticated: %v", q.name, q.t, r, q.rcode, q.count, !q.insecure)
		}
	}
}

// delv checks that delv validates the answers of the server at addr with keys as trust
// anchors.
func delv(t *testing.T, addr netip.AddrPort, keys []*dns.DNSKEY, queries []signedQuery) {
	t.Helper()
	program := debian.Program(t, "delv")
	var b strings.Builder
	b.WriteString("trust-anchors {\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "%q static-key %d %d %d %q;\n", key.Hdr.Name, key.Flags, key.Protocol, key.Algorithm, key.PublicKey)
	}
	b.WriteString("};\n")
	anchors := filepath.Join(t.TempDir(), "anchors.conf")
	writeFile(t, anchors, b.String())
	for _, q := range queries {
		root := ""
		for _, key := range keys {
			if dns.IsSubDomain(key.Hdr.Name, q.name) && len(key.Hdr.Name) > len(root) {
				root = key.Hdr.Name
			}
		}
		out, err := exec.Command(program, "@"+addr.Addr().String(), "-p", fmt.Sprint(addr.Port()), "-a", anchors, "+root="+root, "+vtrace", q.name, q.t).CombinedOutput()
		want := "fully validated"
		if q.insecure {
			want = "unsigned answer"
		}
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("delv: %s %s: want %q, got error %v and\n%s", q.name, q.t, want, err, out)
		}
	}
}
