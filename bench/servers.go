//go:build linux

package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"
)

// A program is a server that can be started.
type program struct {
	name   string
	argv   []string
	at     map[string]netip.AddrPort // its addresses, if they are not free to choose; "plain" gets the queries over UDP
	config string                    // a template in the directory config; the path of its output is the last argument
	values map[string]any            // of the template
}

// configs are the configurations of the servers. configure has the functions that they call.
//
//go:embed config
var configs embed.FS

// seamark returns our server with a Corefile.
func (b *bench) seamark(corefile string, values map[string]any) program {
	return program{name: "seamark", argv: []string{b.binary, "serve", "--conf"}, config: corefile, values: values}
}

// stock returns our server with kubeadm's Corefile, with other addresses only.
func (b *bench) stock(source string, readers int) program {
	return b.seamark("stock.Corefile", map[string]any{"source": source, "readers": readers})
}

// base returns a program of our server with the binary of -base in place of ours.
func (b *bench) base(p program) program {
	p.name, p.argv = "base", append([]string{b.basePath}, p.argv[1:]...)
	return p
}

// peer returns another server, with the values of its template.
func (b *bench) peer(name string, values map[string]any) program {
	p := map[string]program{
		"coredns": {argv: []string{"-conf"}, config: "stock.Corefile"},
		"knot":    {argv: []string{"-c"}, config: "knot.conf"},
		"unbound": {argv: []string{"-d", "-c"}, config: "unbound.conf"},
		"nsd":     {argv: []string{"-d", "-c"}, config: "nsd.conf"},
		"dnsmasq": {argv: []string{"--keep-in-foreground", "-C"}, config: "dnsmasq.conf"},
	}[name]
	p.name, p.argv, p.values = name, append([]string{b.paths[name]}, p.argv...), values
	return p
}

// loop returns the bare loop with the answers of a file.
func (b *bench) loop(name string, addr netip.AddrPort, answers string, more ...string) program {
	argv := []string{b.self, "loop", "-listen", b.listen(addr), "-table", answers}
	return program{name: name, at: map[string]netip.AddrPort{"plain": addr}, argv: append(argv, more...)}
}

// A server is a process that the benchmark has started.
type server struct {
	program
	pods []*os.File // the network namespaces that its queries come from; ours without any
	home string     // a directory of its own, which has the configuration and the output
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
}

func (s *server) addr() netip.AddrPort { return s.at["plain"] }

func (s *server) pid() int { return s.cmd.Process.Pid }

// start starts a program and waits until it answers q.
func (b *bench) start(ctx context.Context, p program, q *lookup) (*server, error) {
	s, err := b.spawn(p)
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, q)
}

// spawn starts a process. Its output goes to a file, whose end is shown if the process fails.
func (b *bench) spawn(p program) (*server, error) {
	b.spawned++
	s := &server{program: p, home: b.file(fmt.Sprintf("%s-%d", p.name, b.spawned)), done: make(chan struct{})}
	if err := os.Mkdir(s.home, 0o755); err != nil {
		return nil, err
	}
	if p.config != "" {
		if err := b.configure(s); err != nil {
			return nil, fmt.Errorf("configuring %s: %w", p.name, err)
		}
	}

	out, err := os.Create(s.log())
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.cmd = exec.Command(s.argv[0], s.argv[1:]...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = out, out, b.dir
	// A signal to our process group must not reach the servers: we stop them.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startPinned(s.cmd, b.cpu(0)); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}

	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // an error, since it is killed
	}()
	b.running = append(b.running, s)
	return s, nil
}

// configure writes the configuration of a server and adds its path to the arguments. Addresses
// that the template names get a free port if the program has none of that name.
func (b *bench) configure(s *server) error {
	s.at = maps.Collect(maps.All(s.at)) // of this process alone
	address := func(name string) (at netip.AddrPort, err error) {
		if !s.at[name].IsValid() {
			s.at[name], err = b.freeAddress()
		}
		return s.at[name], err
	}
	functions := template.FuncMap{
		"address": address,
		"port": func(name string) (uint16, error) {
			at, err := address(name)
			return at.Port(), err
		},
		"listen": func(name, separator string) (string, error) {
			at, err := address(name)
			return strings.Replace(b.listen(at), ":", separator, 1), err
		},
		"file": b.file,
	}

	values := map[string]any{"home": s.home, "wildcard": b.wildcard, "upstream": b.upstream.addr()}
	maps.Copy(values, s.values)
	name := filepath.Join(s.home, s.config)
	s.argv = append(slices.Clip(s.argv), name)
	return b.expand(name, s.config, functions, values)
}

// expand writes a template of the directory config to a file.
func (b *bench) expand(file, name string, functions template.FuncMap, values map[string]any) error {
	t, err := template.New(name).Funcs(functions).ParseFS(configs, "config/"+name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	return errors.Join(t.Execute(&text, values), os.WriteFile(file, text.Bytes(), 0o644))
}

func (s *server) log() string { return filepath.Join(s.home, "log") }

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

// stopAll stops every running server.
func (b *bench) stopAll() { b.stopAfter(0) }

// stopServers stops the servers of a scenario but for the upstream.
func (b *bench) stopServers() { b.stopAfter(1) }

// stopAfter stops the servers but for the first n, the last one first.
func (b *bench) stopAfter(n int) {
	for _, s := range slices.Backward(b.running[n:]) {
		s.stop()
	}
	b.running = b.running[:n]
}

// tail returns the end of a server's output.
func (s *server) tail() string {
	text, err := os.ReadFile(s.log())
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
	conn, err := s.dial()
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

// dial opens a UDP socket, in a pod if the server has pods.
func (s *server) dial() (conn net.Conn, err error) {
	dial := func() error {
		conn, err = net.Dial("udp4", s.addr().String())
		return err
	}

	if len(s.pods) == 0 {
		err = dial()
	} else {
		err = within(s.pods[0], dial)
	}
	return conn, err
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

// freeAddress returns a loopback address whose port is free for UDP and TCP, another one at each
// call. It is below the ephemeral ports, which the generator's sockets use.
func (b *bench) freeAddress() (netip.AddrPort, error) {
	const first, ports = 20000, 12000
	for range 100 {
		port := uint16(first + rand.IntN(ports))
		if slices.Contains(b.ports, port) {
			continue
		}
		anywhere := fmt.Sprintf("0.0.0.0:%d", port)
		l, err := net.Listen("tcp4", anywhere)
		if err != nil {
			continue
		}
		c, err := net.ListenPacket("udp4", anywhere)
		l.Close()
		if err == nil {
			c.Close()
			b.ports = append(b.ports, port)
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), nil
		}
	}
	return netip.AddrPort{}, errors.New("no port is free for both UDP and TCP")
}

// listen returns the address to listen on for a server that is queried at addr.
func (b *bench) listen(addr netip.AddrPort) string {
	if b.wildcard && addr.Addr().IsLoopback() {
		return fmt.Sprintf("0.0.0.0:%d", addr.Port())
	}
	return addr.String()
}

// file returns the path of a file in the temporary directory.
func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// fromFolder and fromAPI return the option of the kubernetes directive for the
// origin of the cluster.
func fromFolder(dir string) string     { return `manifests "` + dir + `"` }
func fromAPI(kubeconfig string) string { return `kubeconfig "` + kubeconfig + `"` }

// folder returns the directory of the population's manifests.
func (b *bench) folder() string { return b.file("manifests") }

// tableFile writes a table into the temporary directory and returns its path.
func (b *bench) tableFile(t table) (string, error) {
	b.spawned++
	file := b.file(fmt.Sprintf("table-%d", b.spawned))
	return file, t.write(file)
}
