package cmd_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// The flag --admin stands for the directive in each server block, over reloads. A Corefile with the
// directive decides by itself.
func TestAdminFlag(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port, admin, own := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	blocks := func(more string) string {
		return fmt.Sprintf("a.example:%s {\n bind 127.0.0.1\n whoami\n%s}\nb.example:%s {\n bind 127.0.0.1\n whoami\n}\n",
			port, more, port)
	}
	file := filepath.Join(dir, "Corefile")
	write(t, file, blocks(""))
	server := serve(t, dir, "", "-conf", "Corefile", "-admin", "127.0.0.1:"+admin)
	defer server.stop()

	for _, name := range []string{"x.a.example.", "x.b.example."} {
		if _, err := ask("udp", port, name, mdns.TypeA); err != nil {
			t.Fatal(err)
		}
		commandShows(t, dir, name, "top", "names", "--admin", "127.0.0.1:"+admin)
	}

	// The reload swaps to the directive of the Corefile, and back.
	write(t, file, blocks(" admin 127.0.0.1:"+own+"\n"))
	server.signal(syscall.SIGHUP)
	server.until("Ignored a flag: the Corefile has its directive")
	commandShows(t, dir, "Healthy", "status", "--admin", "127.0.0.1:"+own)
	if out, _, code := run(t, dir, "", "status", "--admin", "127.0.0.1:"+admin); code != 1 {
		t.Errorf("the flag's address while the Corefile has admin: got status %d and\n%s, want 1", code, out)
	}
	write(t, file, blocks(""))
	server.signal(syscall.SIGHUP)
	commandShows(t, dir, "Healthy", "status", "--admin", "127.0.0.1:"+admin)
}

func TestAdminFlagOfOtherCommands(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port := t.TempDir(), freeport.Reserve(t)
	server := launch(t, program.Command(t, dir, "dnsmasq-nanny", "-admin=unix:admin.sock", "--", "--no-resolv",
		"--server=192.0.2.53", "--listen-address=127.0.0.1", "--bind-interfaces", "--port="+port), io.Discard, "")
	defer server.stop()
	commandShows(t, dir, "Healthy", "status", "--admin", "unix:admin.sock")
}

func TestAdminFlagErrors(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ".:0 {\n bind 127.0.0.1\n whoami\n}\n")
	for args, want := range map[string]string{
		"0.0.0.0:8053":                       "--admin: other machines can reach 0.0.0.0:8053: use an address such as localhost:8053, or the",
		":8053":                              "--admin: other machines can reach :8053",
		"dns.example.org:1":                  "--admin: other machines can reach dns.example.org:1",
		"localhost":                          `"--admin" flag: want an address and a port such as :8080, got "localhost"`,
		"unix:":                              `"--admin" flag: want HOST:PORT or unix:PATH, got "unix:"`,
		"localhost:1x":                       `want a port of 0..65535, got "1x"`,
		"localhost:8053 -admin localhost:99": `"--admin" flag: it is given twice`,
	} {
		line := append([]string{"serve", "--conf", "Corefile", "-admin"}, strings.Fields(args)...)
		if out, stderr, code := run(t, dir, "", line...); code == 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("-admin %s: got status %d and\n%s%s, want an error with %q", args, code, out, stderr, want)
		}
	}
}

// An address in use, by another process or by an address of the Corefile, keeps no server from
// answering.
func TestAdminFlagAddressInUse(t *testing.T) {
	long(t)
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	metrics := freeport.Reserve(t)
	for address, more := range map[string]string{
		used.Addr().String():   "",
		"127.0.0.1:" + metrics: " prometheus 0.0.0.0:" + metrics + "\n",
	} {
		dir, port := t.TempDir(), freeport.Reserve(t)
		write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n whoami\n%s}\n", port, more))
		server := serve(t, dir, "", "-conf", "Corefile", "-admin", address)
		if log := strings.Join(server.before, "\n"); !strings.Contains(log, "Pages are not served, trying again") &&
			!strings.Contains(log, "cannot both be listened on: its pages are not served") {
			t.Errorf("with %s in use: got the log\n%s\nwant a warning", address, log)
		}
		if _, err := ask("udp", port, "x.example.", mdns.TypeA); err != nil {
			t.Errorf("with %s in use: %v", address, err)
		}
		server.stop()
	}
}
