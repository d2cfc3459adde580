package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
)

// serveAPI serves the Service api as an API server that does not stream lists.
func serveAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case query.Has("sendInitialEvents"):
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Has("watch"):
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		item := map[string]string{
			"namespaces": `{"metadata":{"name":"default"}}`,
			"services":   `{"metadata":{"namespace":"default","name":"api"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`,
		}[path.Base(r.URL.Path)]
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7"},"items":[%s]}`, item)
	}
}

// The server works with the restrictions of the manifests in deploy: user 65532, no
// capability but NET_BIND_SERVICE, a read-only root directory, and the system calls that a
// container runtime allows by default. It answers, reloads, hands over to another process
// and writes its snapshot into the only writable directory.
func TestRestrictedContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: cannot emulate a container's security context; run the test as root")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the list of system calls is for amd64")
	}
	binary := copyOfBinary(t, true)
	conf, writable := t.TempDir(), t.TempDir()
	if err := os.Chown(writable, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(serveAPI))
	t.Cleanup(api.Close)
	port, metrics := freeport.Reserve(t), freeport.Reserve(t)
	corefile := func(ttl int) string {
		return fmt.Sprintf(`.:%[1]s {
    bind 127.0.0.1
    errors
    health 127.0.0.1:%[2]s
    ready 127.0.0.1:%[3]s
    prometheus 127.0.0.1:%[4]s
    handover %[5]s/seamark.sock
    cache 30
    loop
    loadbalance
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        endpoint %[7]s
        snapshot %[5]s/snapshot
        ttl %[6]d
    }
}
`, port, freeport.Reserve(t), freeport.Reserve(t), metrics, writable, ttl, api.URL)
	}
	file := filepath.Join(conf, "Corefile")
	write(t, file, corefile(5))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		c := exec.CommandContext(t.Context(), self, "-test.run=^TestContainerProcess$", binary, "-conf", file)
		c.Env = append(os.Environ(), "SEAMARK_TEST_CONTAINER=true", "SEAMARK_TEST_WRITABLE="+writable)
		c.Dir = "/"
		return start(t, c, os.Stderr, "")
	}
	at := "127.0.0.1:" + port
	// check checks the process's restrictions and its answers.
	check := func(p *process, ttl uint32) {
		t.Helper()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t65532\t", "CapEff:\t0000000000000400\n", "CapBnd:\t0000000000000400\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("status of the process: got\n%s\nwant %q", status, want)
			}
		}
		answers(t, at)
		for _, network := range []string{"udp", "tcp"} {
			reply, err := ask(network, at, serviceName, dns.TypeA)
			if err != nil || len(reply.Answer) != 1 || reply.Answer[0].Header().Ttl != ttl {
				t.Errorf("%s: got %v, error %v, want one record with TTL %d", network, reply, err, ttl)
			}
		}
		resp, err := http.Get("http://127.0.0.1:" + metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("metrics: got status %s, want 200", resp.Status)
		}
	}
	p := run()
	check(p, 5)
	write(t, file, corefile(7))
	p.signal(syscall.SIGHUP)
	p.until("Reloading complete")
	check(p, 7)
	next := run()
	if code := p.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
	check(next, 7)
	next.stop()
	if info, err := os.Stat(filepath.Join(writable, "snapshot")); err != nil || info.Size() == 0 {
		t.Errorf("snapshot: got %v, error %v, want a file", info, err)
	}
}
