package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

// While the API server refuses connections, status, ready, explain and the log say so, with the API
// server's address, and nothing that is not known.
func TestStatusWithoutAPIServer(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin, ready, api := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"),
		fmt.Sprintf(".:0 {\n bind 127.0.0.1\n admin localhost:%s\n ready 127.0.0.1:%s\n"+
			" kubernetes cluster.local {\n  endpoint http://127.0.0.1:%s\n }\n"+
			" grpc example.org 192.0.2.2:443\n forward . 192.0.2.1 {\n  except example.org\n }\n}\n", admin, ready,
			api))
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()
	p.until("API server unreachable")

	reason := "endpointslices have not been listed since the start; API server unreachable, 127.0.0.1:" + api + ": "
	out, _, code := run(t, dir, "", "status", "--admin", "localhost:"+admin)
	if code != 1 {
		t.Errorf("got status %d, want 1", code)
	}
	for _, want := range []string{
		": Not ready: kubernetes: ", "\n  CRITICAL  not ready: kubernetes: ", reason,
		"next: seamark doctor\n", "connection refused",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %q", out, want)
		}
	}
	for name, want := range map[string]string{
		"data age": "never (endpointslices)", "data cluster.local.": "not synced",
		"upstream 192.0.2.1:53": "not used yet", "upstream 192.0.2.2:443": "not used yet",
		"p50 below": "-", "p99 below": "-", "wasted searches": "0 %",
	} {
		if got := row(out, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}

	if got := page(t, "http://127.0.0.1:"+ready+"/ready"); !strings.HasPrefix(got, "kubernetes\nkubernetes: ") ||
		!strings.Contains(got, reason) {
		t.Errorf("/ready: got %q, want the reason", got)
	}
	out, _, _ = run(t, dir, "", "explain", "kubernetes.default.svc.cluster.local", "--admin", "localhost:"+admin)
	if !strings.Contains(out, "not synced: ") || strings.Contains(out, "does not exist") {
		t.Errorf("explain: got\n%s\nwant that it is not synced, and nothing about objects", out)
	}
}

// page returns the body of a page.
func page(t *testing.T, url string) string {
	t.Helper()
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// row returns the value of a row of status.
func row(out, name string) string {
	for line := range strings.Lines(out) {
		if value, ok := strings.CutPrefix(strings.TrimLeft(line, " "), name+"  "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A reload that fails is a condition until one succeeds. Its JSON has the members of the page.
func TestStatusAfterFailedReload(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin := t.TempDir(), freeport.Reserve(t)
	corefile := ".:0 {\n bind 127.0.0.1\n admin localhost:" + admin + "\n whoami\n}\n"
	write(t, filepath.Join(dir, "Corefile"), corefile)
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	conditions := func(wantCode int) []health.Condition {
		t.Helper()
		out, stderr, code := run(t, dir, "", "status", "--output", "json", "--admin", "localhost:"+admin)
		var report struct {
			Servers []struct {
				Status struct{ Conditions []health.Condition }
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Servers) != 1 || code != wantCode {
			t.Fatalf("got status %d, error %v and\n%s%s", code, err, out, stderr)
		}
		return report.Servers[0].Status.Conditions
	}
	if got := conditions(0); len(got) != 0 {
		t.Errorf("at the start: got %+v, want none", got)
	}

	write(t, filepath.Join(dir, "Corefile"), corefile+"nonsense {\n nonsense\n}\n")
	p.signal(syscall.SIGHUP)
	p.until("Reload failed")
	got := conditions(1)
	if len(got) != 1 || got[0].Alert != "SeamarkReloadFailed" || !strings.Contains(got[0].Text, "Corefile:7") ||
		got[0].Since.IsZero() {
		t.Errorf("after a reload that failed: got %+v, want SeamarkReloadFailed with the file and line", got)
	}

	write(t, filepath.Join(dir, "Corefile"), corefile+"# repaired\n")
	p.signal(syscall.SIGHUP)
	p.until("Reloading complete")
	if got := conditions(0); len(got) != 0 {
		t.Errorf("after one that succeeded: got %+v, want none", got)
	}
}

// Files that cannot be used in place of those in use are conditions until they can.
func TestStatusOfBrokenFiles(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin := t.TempDir(), freeport.Reserve(t)
	zone := "@ 60 SOA ns host %d 1 1 1 1\n@ 60 NS ns\n"
	files := func(serial int, end string) {
		write(t, filepath.Join(dir, "zone"), fmt.Sprintf(zone, serial)+end)
	}
	writeCertificate(t, dir)
	files(1, "")
	write(t, filepath.Join(dir, "Corefile"),
		"tls://example.org:0 dns://example.org:0 {\n bind 127.0.0.1\n admin localhost:"+admin+"\n"+
			" tls cert.pem key.pem\n file zone {\n  reload 100ms\n }\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	objects := func() (found []string) {
		out, _, _ := run(t, dir, "", "status", "--output", "json", "--admin", "localhost:"+admin)
		var report struct {
			Servers []struct {
				Status struct{ Conditions []health.Condition }
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Servers) != 1 {
			t.Fatalf("got error %v and\n%s", err, out)
		}
		for _, c := range report.Servers[0].Status.Conditions {
			if c.Remedy() == "" {
				t.Errorf("%+v has no next step", c)
			}
			if c.Alert == "SeamarkCertificateExpires" {
				continue // those of the tests do, soon
			}
			found = append(found, filepath.Base(c.Object))
		}
		slices.Sort(found)
		return found
	}
	if got := objects(); len(got) != 0 {
		t.Errorf("at the start: got conditions of %q, want none", got)
	}

	certificate, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), "no certificate\n")
	files(2, "nonsense (\n")
	chaintest.Eventually(t, "the conditions of two files",
		func() bool { return slices.Equal(objects(), []string{"cert.pem", "zone"}) })
	write(t, filepath.Join(dir, "cert.pem"), string(certificate))
	files(3, "")
	chaintest.Eventually(t, "no condition", func() bool { return len(objects()) == 0 })
}

// A zone that cannot be transferred is a condition, with the primary and its error, until it is.
func TestStatusOfUnreachablePrimary(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin, port := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "zone"), "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\n")
	write(t, filepath.Join(dir, "Corefile"), "example.org:0 {\n bind 127.0.0.1\n admin localhost:"+admin+"\n"+
		" secondary {\n  transfer from 127.0.0.1:"+port+"\n }\n}\n")
	write(t, filepath.Join(dir, "primary"), "example.org:"+port+" {\n bind 127.0.0.1\n file zone\n transfer {\n  to *\n }\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	shows := func(want string) {
		t.Helper()
		chaintest.Eventually(t, want, func() bool {
			out, _, _ := run(t, dir, "", "status", "--admin", "localhost:"+admin)
			return strings.Contains(out, want)
		})
	}
	shows("CRITICAL  the zone example.org. cannot be transferred and is not served: 127.0.0.1:" + port + ": ")
	primary := serve(t, dir, "", "-conf", "primary")
	defer primary.stop()
	shows(": Healthy.\n")
}

// A storm of random names beside usual queries is a condition, with the parent of the names and a
// client; top counts it as one line.
func TestStatusInStorm(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin, port := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), ".:"+port+" {\n bind 127.0.0.1\n admin localhost:"+admin+"\n"+
		" template IN A shop.example {\n  match ^x\n  rcode NXDOMAIN\n  fallthrough\n }\n whoami\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()

	conn, err := net.Dial("udp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := mdns.Conn{Conn: conn}
	for i := range 8000 {
		name := "web.shop.example."
		if i%2 == 0 {
			name = fmt.Sprintf("x%d.shop.example.", i)
		}
		if err := c.WriteMsg(new(mdns.Msg).SetQuestion(name, mdns.TypeA)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadMsg(); err != nil {
			t.Fatal(err)
		}
	}

	out, _, code := run(t, dir, "", "status", "--admin", "localhost:"+admin)
	if !strings.Contains(out, " of the queries are for names that do not exist: about ") || code != 1 ||
		!strings.Contains(out, " names below shop.example., from one client") ||
		!strings.Contains(out, "next: seamark tail --client 127.0.0.1\n") {
		t.Errorf("got status %d and\n%s\nwant the storm", code, out)
	}
	out, _, _ = run(t, dir, "", "top", "nxdomain", "--admin", "localhost:"+admin)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 ||
		!strings.Contains(lines[2], " names below shop.example., from one client") {
		t.Errorf("top nxdomain: got\n%s\nwant the names below shop.example. alone", out)
	}
}

// The error of an upstream that is down is in its condition, its row, the JSON, the page and the log.
func TestStatusNamesErrorOfUpstream(t *testing.T) {
	long(t)
	t.Parallel()
	dir, admin, port, closed := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), ".:"+port+" {\n bind 127.0.0.1\n admin localhost:"+admin+"\n"+
		" forward . 127.0.0.1:"+closed+"\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()
	if _, err := ask("udp", port, "www.example.org.", mdns.TypeA); err != nil {
		t.Fatal(err)
	}
	p.until("Upstream is down upstream=127.0.0.1:" + closed)

	const reason = "connection refused over UDP (ICMP port unreachable)"
	out, _, code := run(t, dir, "", "status", "--admin", "localhost:"+admin)
	if want := "the upstream 127.0.0.1:" + closed + " is down; last error: " + reason; !strings.Contains(out, want) ||
		row(out, "upstream 127.0.0.1:"+closed) != "DOWN, last error: "+reason || code != 1 {
		t.Errorf("got status %d and\n%s\nwant %q, and the row", code, out, want)
	}
	if got := page(t, "http://localhost:"+admin+"/"); !strings.Contains(got, "<td class=\"name\">"+reason+", <span") {
		t.Errorf("the page has no last error of the upstream:\n%s", got)
	}

	out, _, _ = run(t, dir, "", "status", "--admin", "localhost:"+admin, "--output", "json")
	var report struct {
		Servers []struct {
			Status struct {
				Upstreams []struct {
					Address   string
					LastError string    `json:"last_error"`
					At        time.Time `json:"last_error_at"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if all := report.Servers[0].Status.Upstreams; len(all) != 1 || all[0].LastError != reason || all[0].At.IsZero() {
		t.Errorf("got %+v, want the last error with its time", all)
	}
}
