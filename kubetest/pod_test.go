package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
)

// A process is one of the binary's commands, run by the name of the program that
// it replaces.
type process struct {
	*daemon
	cmd   *exec.Cmd
	ended chan error
}

// program runs the binary under a name until the test ends. Clients query it at.
func program(t *testing.T, at, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{daemon: &daemon{T: t, at: at}, ended: make(chan error, 1)}
	p.cmd = exec.Command(must(os.Executable())(t), args...)
	p.cmd.Args[0] = "/usr/bin/" + name
	p.cmd.Env = append(append(os.Environ(), "SEAMARK_TEST_MAIN=1"), env...)
	p.startCommand(name)
	return p
}

// startCommand starts the command until the test ends.
func (p *process) startCommand(name string) {
	p.Helper()
	p.cmd.Stdout, p.cmd.Stderr = &p.journal, &p.journal
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	p.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.Errorf("%s still runs %v after SIGKILL, want it to end", name, patience)
		}
		if p.Failed() {
			p.Logf("the log of %s:\n%s", name, p.log())
		}
	})
}

// terminate sends SIGTERM and waits for a successful exit.
func (p *process) terminate() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			p.Errorf("after SIGTERM: got %v, want exit status 0", err)
		}
		p.ended <- err
	case <-time.After(patience):
		p.Errorf("the process still runs %v after SIGTERM, want it to exit", patience)
	}
}

// upstream starts a DNS server outside the cluster that serves these records
// only.
func upstream(t *testing.T, records ...string) (at string) {
	t.Helper()
	known := map[string][]dns.RR{}
	for _, text := range records {
		rr := must(dns.NewRR(text))(t)
		known[rr.Header().Name] = append(known[rr.Header().Name], rr)
	}
	return serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		reply.RecursionAvailable = true
		all := known[strings.ToLower(m.Question[0].Name)]
		for _, rr := range all {
			if rr.Header().Rrtype == m.Question[0].Qtype || m.Question[0].Qtype == dns.TypeANY {
				reply.Answer = append(reply.Answer, rr)
			}
		}
		if len(all) == 0 {
			reply.Rcode = dns.RcodeNameError
		}
		if len(reply.Answer) == 0 {
			soa, _ := dns.NewRR(". 5 IN SOA a. b. 1 2 3 4 5")
			reply.Ns = append(reply.Ns, soa)
		}
		_ = w.WriteMsg(reply)
	})
}

// serveDNS serves UDP and TCP on a loopback port until the test ends.
func serveDNS(t *testing.T, handle dns.HandlerFunc) (at string) {
	t.Helper()
	at = "127.0.0.1:" + freeport.Reserve(t)
	for _, network := range []string{"udp", "tcp"} {
		started := make(chan struct{})
		s := &dns.Server{Addr: at, Net: network, Handler: handle, NotifyStartedFunc: func() { close(started) }}
		failed := make(chan error, 1)
		go func() { failed <- s.ListenAndServe() }()
		select {
		case <-started:
		case err := <-failed:
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return at
}

// A volume is a ConfigMap mounted by a kubelet: its files are links into the
// directory that ..data points to. A change is another directory and another
// link.
type volume struct {
	*testing.T
	dir     string
	version int
}

func newVolume(t *testing.T, data map[string]string) *volume {
	v := &volume{T: t, dir: t.TempDir()}
	v.change(data)
	return v
}

func (v *volume) change(data map[string]string) {
	v.Helper()
	v.version++
	check := func(err error) {
		v.Helper()
		if err != nil {
			v.Fatal(err)
		}
	}
	folder := fmt.Sprintf("..2026_11_21_10_00_00.%09d", v.version)
	check(os.Mkdir(filepath.Join(v.dir, folder), 0o755))
	for key, value := range data {
		check(os.WriteFile(filepath.Join(v.dir, folder, key), []byte(value), 0o644))
	}
	before, _ := os.Readlink(filepath.Join(v.dir, "..data"))
	check(os.Symlink(folder, filepath.Join(v.dir, "..data_tmp")))
	check(os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")))
	entries := must(os.ReadDir(v.dir))(v.T)
	for _, e := range entries {
		if _, stays := data[e.Name()]; !stays && !strings.HasPrefix(e.Name(), "..") {
			check(os.Remove(filepath.Join(v.dir, e.Name())))
		}
	}
	for key := range data {
		if _, err := os.Lstat(filepath.Join(v.dir, key)); err != nil {
			check(os.Symlink(filepath.Join("..data", key), filepath.Join(v.dir, key)))
		}
	}
	if before != "" {
		check(os.RemoveAll(filepath.Join(v.dir, before)))
	}
}
