//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A server is a process that the benchmark has started.
type server struct {
	name string
	addr netip.AddrPort
	cmd  *exec.Cmd
	log  string        // its output
	done chan struct{} // closed at its end

	metrics netip.AddrPort // of our server and CoreDNS
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// spawn starts a process. Its output goes to a file in the temporary directory,
// whose end is shown if the process fails.
func (b *bench) spawn(name string, addr netip.AddrPort, argv ...string) (*server, error) {
	b.spawned++
	s := &server{name: name, addr: addr, log: filepath.Join(b.dir, fmt.Sprintf("%s-%d.log", name, b.spawned)),
		done: make(chan struct{})}
	out, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = out, out, b.dir
	// A signal to our process group must not reach the servers: we stop them.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startPinned(s.cmd, b.serverCPU()); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // an error, since it is killed
	}()
	b.running = append(b.running, s)
	return s, nil
}

// startPinned starts a process on one CPU, which it inherits from the thread.
func startPinned(cmd *exec.Cmd, cpu int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	release, err := pinThread(cpu)
	if err != nil {
		return err
	}
	defer release()
	return cmd.Start()
}

// stop kills the process and waits for its end. Servers have no state to save
// here, and some take seconds to shut down.
func (s *server) stop() {
	select {
	case <-s.done:
	default:
		_ = s.cmd.Process.Kill() // it may have ended already
		<-s.done
	}
}

// stopAll stops every running server, the last one first.
func (b *bench) stopAll() {
	for i := len(b.running) - 1; i >= 0; i-- {
		b.running[i].stop()
	}
	b.running = nil
}

// tail returns the end of a server's output.
func (s *server) tail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-1000):]))
}

// loading bounds the time that a server takes to read the cluster: Unbound reads
// half a million lines.
const loading = 2 * time.Minute

// await sends a query until the answer is right.
func (s *server) await(ctx context.Context, q *lookup) error {
	conn, err := net.Dial("udp4", s.addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()

	room := make([]byte, 1<<16)
	last := "no answer"
	for until := clock() + loading; clock() < until; time.Sleep(time.Millisecond) {
		select {
		case <-s.done:
			return fmt.Errorf("%s has ended: %s", s.name, s.tail())
		case <-ctx.Done():
			return ctx.Err()
		default:
		}

		n, err := exchange(conn, q, room, 100*time.Millisecond)
		if err != nil {
			continue // the port is not open yet
		}
		if last = q.wrong(room[:n], true); last == "" {
			return nil
		}
	}
	return fmt.Errorf("%s: no right answer within %v: %s; %s", s.name, loading, last, s.tail())
}

// exchange sends a query once.
func exchange(conn net.Conn, q *lookup, room []byte, patience time.Duration) (int, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(q.packet); err != nil {
		return 0, err
	}
	return conn.Read(room)
}

// freeAddress returns a loopback address whose port is free for UDP and TCP. It
// is below the ephemeral ports, which the generator's sockets use.
func freeAddress() (netip.AddrPort, error) {
	const first, ports = 20000, 12000
	for range 100 {
		port := first + rand.IntN(ports)
		anywhere := fmt.Sprintf("0.0.0.0:%d", port)
		l, err := net.Listen("tcp4", anywhere)
		if err != nil {
			continue
		}
		c, err := net.ListenPacket("udp4", anywhere)
		l.Close()
		if err == nil {
			c.Close()
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)), nil
		}
	}
	return netip.AddrPort{}, errors.New("no port is free for both UDP and TCP")
}

// file writes a file into the temporary directory and returns its path.
func (b *bench) file(name, text string) (string, error) {
	name = filepath.Join(b.dir, name)
	return name, os.WriteFile(name, []byte(text), 0o644)
}

// configured writes a configuration file and starts a process with its path as the last argument.
func (b *bench) configured(name string, addr netip.AddrPort, text string, argv ...string) (*server, error) {
	conf, err := b.file(fmt.Sprintf("%s-%d.conf", name, b.spawned), text)
	if err != nil {
		return nil, err
	}
	return b.spawn(name, addr, append(argv, conf)...)
}

// fromFolder and fromAPI return the option of the kubernetes directive for the
// origin of the cluster.
func fromFolder(dir string) string     { return `manifests "` + dir + `"` }
func fromAPI(kubeconfig string) string { return `kubeconfig "` + kubeconfig + `"` }

// folder returns the directory of the population's manifests.
func (b *bench) folder() string { return filepath.Join(b.dir, "manifests") }

// lines formats text that begins in the line after its quote.
func lines(format string, a ...any) string {
	return fmt.Sprintf(strings.TrimPrefix(format, "\n"), a...)
}

// stock starts a server with kubeadm's Corefile, with other addresses only. Its
// arguments are args and the path of that file.
func (b *bench) stock(name, source, more string, args ...string) (*server, error) {
	var free [4]netip.AddrPort
	for i := range free {
		var err error
		if free[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}

	if !b.wildcard {
		more = "    bind 127.0.0.1\n" + more
	}

	s, err := b.configured(name, free[3], lines(`
.:%d {
%s    errors
    health %s {
       lameduck 5s
    }
    ready %s
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       %s
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus %s
    forward . %s {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`, free[3].Port(), more, free[0], free[1], source, free[2], b.upstream.addr), args...)
	if err != nil {
		return nil, err
	}

	s.metrics = free[2]
	return s, nil
}

// seamark starts our server and waits until it answers q.
func (b *bench) seamark(ctx context.Context, source string, readers int, q *lookup) (*server, error) {
	s, err := b.stock("seamark", source, fmt.Sprintf("    multisocket %d\n", readers), b.binary, "serve", "--conf")
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, q)
}

// coredns starts the given binary with the same Corefile.
func (b *bench) coredns() (*server, error) {
	return b.stock("coredns", fromAPI(b.api.kubeconfig), "", b.corednsPath, "-conf")
}

// loop starts the bare loop with the answers of a table.
func (b *bench) loop(name string, t table, readers int, more ...string) (*server, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file, err := b.tableFile(t)
	if err != nil {
		return nil, err
	}
	argv := []string{b.self, "loop", "-listen", b.listen(addr), "-readers", fmt.Sprint(readers), "-table", file}
	return b.spawn(name, addr, append(argv, more...)...)
}

// tableFile writes a table into the temporary directory and returns its path.
func (b *bench) tableFile(t table) (string, error) {
	file := filepath.Join(b.dir, fmt.Sprintf("table-%d", b.spawned))
	return file, t.write(file)
}

// listen returns the address to listen on for a server that is queried at addr.
func (b *bench) listen(addr netip.AddrPort) string {
	if b.wildcard {
		return fmt.Sprintf("0.0.0.0:%d", addr.Port())
	}
	return addr.String()
}

// knot starts Knot with the zone files.
func (b *bench) knot(readers int) (*server, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}

	b.spawned++
	dir := filepath.Join(b.dir, fmt.Sprintf("knot-%d", b.spawned))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}

	return b.configured("knot", addr, lines(`
server:
    rundir: "%s"
    listen: %s
    udp-workers: %d
    tcp-workers: %d
    background-workers: 1
database:
    storage: "%s"
log:
  - target: stderr
    any: warning
template:
  - id: default
    storage: "%s"
    journal-content: none
    zonefile-load: whole
    semantic-checks: off
zone:
  - domain: %s
    file: cluster.zone
  - domain: %s
    file: reverse.zone
`, dir, strings.Replace(b.listen(addr), ":", "@", 1), readers, readers, dir, b.dir, forwardZone, reverseZone),
		b.paths["knot"], "-c")
}

// dnsmasq starts dnsmasq with a hosts file. It has no SRV records and one thread.
func (b *bench) dnsmasq() (*server, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return b.spawn("dnsmasq", addr, b.paths["dnsmasq"], "--keep-in-foreground", "--conf-file=/dev/null",
		"--no-resolv", "--no-hosts", "--log-facility=-", "--pid-file=", "--user=", "--group=",
		"--addn-hosts="+filepath.Join(b.dir, "hosts"), fmt.Sprintf("--port=%d", addr.Port()),
		"--listen-address=127.0.0.1", "--bind-interfaces", "--cache-size=10000", fmt.Sprintf("--local-ttl=%d", ttl),
		"--local=/"+domain+"/", "--local=/10.in-addr.arpa/")
}

// unbound starts Unbound with local data.
func (b *bench) unbound(readers int) (*server, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return b.startUnbound(addr, lines(`
    num-threads: %d
    so-reuseport: yes
    interface: %s
`, readers, strings.Replace(b.listen(addr), ":", "@", 1)))
}

// startUnbound starts Unbound with local data and more options of a server.
func (b *bench) startUnbound(addr netip.AddrPort, options string) (*server, error) {
	return b.configured("unbound", addr, lines(`
server:
    directory: "%s"
    chroot: ""
    username: ""
    pidfile: ""
    do-daemonize: no
    use-syslog: no
    verbosity: 0
%s
    access-control: 127.0.0.0/8 allow
    module-config: "iterator"
    local-zone: "%s" static
    local-zone: "%s" static
    include: "%s"
`, b.dir, options, forwardZone, reverseZone, filepath.Join(b.dir, "local-data")),
		b.paths["unbound"], "-d", "-c")
}
