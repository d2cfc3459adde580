package cmd_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// The resolvers of the C libraries glibc and musl find the addresses that an upstream sends in
// replies with a fault.
func TestLibraryResolversFindAddresses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("port 53 and a mount namespace require root")
	}
	dir, address := t.TempDir(), freeport.Address(t) // musl's resolver has no option for the port
	up := startFaultyServer(t)
	write(t, filepath.Join(dir, "weights"), "w.weighted.test\n192.0.2.7 3\n")
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(manifests, "cluster.yaml"), `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: reversed.plain.test}
`)

	options := map[string]string{
		"plain.test":    "",
		"balanced.test": "loadbalance\n",
		"prefer.test":   "loadbalance {\n prefer 192.0.2.0/24\n}\n",
		"weighted.test": "loadbalance weighted weights\n",
		"cached.test":   "cache\nloadbalance\n",
	}
	var names []string
	corefile := "cluster.local:53 {\n bind " + address + "\n kubernetes cluster.local {\n  manifests manifests\n }\n}\n"
	for zone, text := range options {
		corefile += fmt.Sprintf("%s:53 {\n bind %s\n %s forward . %s\n}\n", zone, address, text, up)
		for _, label := range []string{"before", "reversed", "upper", "cut"} {
			names = append(names, label+"."+zone)
		}
	}
	for _, label := range []string{"drop", "servfail", "badvers", "header"} {
		corefile += fmt.Sprintf("%s.edns.test:53 {\n bind %s\n forward . %s\n}\n", label, address, startFaultyServer(t))
		names = append(names, label+".edns.test")
	}
	write(t, filepath.Join(dir, "Corefile"), corefile)
	serve(t, dir, "", "-conf", "Corefile")

	names = append(names, "db.shop.svc.cluster.local", "before.cached.test", "reversed.cached.test")
	for _, compiler := range []string{"cc", "musl-gcc"} {
		t.Run(compiler, func(t *testing.T) {
			got := lookUp(t, compiler, address, names)
			for _, name := range names {
				if want := name + " 192.0.2.7"; got[name] != want {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// lookUp looks up names at a server, with the resolver of the C library that compiler links, and returns the
// line that the program prints for each.
func lookUp(t *testing.T, compiler, server string, names []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "resolv.conf"), "nameserver "+server+"\n")
	program := filepath.Join(dir, "lookup")
	if out, err := exec.Command(debian.Program(t, compiler), "-o", program, "testdata/lookup.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}

	// The mounts are private to the namespace of the program.
	script := `mount --make-rprivate / && mount --bind "$0"/resolv.conf /etc/resolv.conf && exec "$0"/lookup "$@"`
	c := exec.Command("sh", append([]string{"-c", script, dir}, names...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("looking up names: %v\n%s", err, out)
	}

	lines := map[string]string{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, " ")
		lines[name] = line
	}
	return lines
}

// startFaultyServer returns the address of a server whose replies have the fault that the first
// label names.
func startFaultyServer(t *testing.T) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{
		{PacketConn: conn, Handler: dns.HandlerFunc(answerWithFault)}, {Listener: l, Handler: dns.HandlerFunc(answerWithFault)},
	} {
		ready := make(chan struct{})
		server.NotifyStartedFunc = func() { close(ready) }
		go func() { _ = server.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return conn.LocalAddr().String()
}

func answerWithFault(w dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg).SetReply(q)
	r.RecursionAvailable = true
	name := q.Question[0].Name
	fault, zone, _ := strings.Cut(strings.ToLower(name), ".")

	record := func(format string, args ...any) dns.RR {
		made, err := dns.NewRR(fmt.Sprintf(format, args...))
		if err != nil {
			panic(err)
		}
		return made
	}
	address := []dns.RR{record("w.%s 60 A 192.0.2.7", zone)}
	if q.Question[0].Qtype != dns.TypeA {
		address = nil // NODATA behind the aliases
	}

	switch fault {
	case "before":
		r.Answer = append(address, record("%s 60 CNAME w.%s", name, zone))
	case "reversed":
		r.Answer = append(address, record("b.%s 60 CNAME w.%s", zone, zone),
			record("a.%s 60 CNAME b.%s", zone, zone), record("%s 60 CNAME a.%s", name, zone))
	case "cut": // over UDP, without TC
		r.Answer = address
		if len(address) > 0 {
			address[0].Header().Name = name
		}
		b, err := r.Pack()
		if err != nil {
			panic(err)
		}
		if _, udp := w.LocalAddr().(*net.UDPAddr); udp {
			b = b[:len(b)-5]
		}
		_, _ = w.Write(b)
		return
	case "drop", "servfail", "badvers", "header": // the reply to queries with EDNS
		if q.IsEdns0() == nil {
			if r.Answer = address; len(address) > 0 {
				address[0].Header().Name = name
			}
			break
		}
		switch fault {
		case "drop":
			return
		case "servfail":
			r.Rcode = dns.RcodeServerFailure
		case "badvers":
			r.SetEdns0(1232, false)
			r.Rcode = dns.RcodeBadVers
		case "header":
			r.Question, r.Rcode = nil, dns.RcodeRefused
		}
	case "upper":
		r.Answer = append(address, record("%s 60 CNAME W.%s", strings.ToUpper(name), strings.ToUpper(zone)))
	}
	_ = w.WriteMsg(r)
}
