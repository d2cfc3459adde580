package cmd_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// capture has the queries to a server with the folder examples at 127.0.0.53, as tcpdump
// captured them: over UDP and TCP, a search path, and a name with an escape character.
const capture = "testdata/traffic.pcap"

type shadowReport struct {
	Queries, Answered, Unanswered, Repeated, Compared, Same, Documented, Different int
	Skipped, RCodes, Directives                                                    map[string]int
	SearchPath                                                                     int `json:"search_path"`
	Upstream                                                                       int `json:"upstream_queries"`
	Groups                                                                         []group
}

// shadowJSON runs the command shadow with --output json.
func shadowJSON(t *testing.T, dir, in string, args ...string) (r shadowReport, stderr string, code int) {
	t.Helper()
	out, stderr, code := run(t, dir, in, append([]string{"shadow", "--output", "json", "--quiet"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("shadow %q: got error %v in output %q, error output %q, status %d, want JSON", args, err, out, stderr, code)
	}
	return r, stderr, code
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// changed returns a copy of the folder examples in which the Service web has another address.
func changed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %q and error %v, want the examples", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(file)), strings.ReplaceAll(string(text), "10.96.10.10", "10.96.10.99"))
	}
	return dir
}

func TestShadow(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	examples := absolute(t, "../examples")
	traffic := absolute(t, capture)
	whole, err := os.ReadFile(traffic)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cut.pcap"), string(whole[:1000]))
	cuts := append([]byte{}, whole[:24]...) // as tcpdump -s 40 captures: 40 bytes of each packet
	for rest := whole[24:]; len(rest) > 56; rest = rest[16+binary.LittleEndian.Uint32(rest[8:]):] {
		cuts = append(cuts, rest[:56]...)
		binary.LittleEndian.PutUint32(cuts[len(cuts)-48:], 40)
	}
	write(t, filepath.Join(dir, "cuts.pcap"), string(cuts))
	write(t, filepath.Join(dir, "text"), strings.Repeat("text ", 20))
	write(t, filepath.Join(dir, "Corefile"), `.:53 {
    kubernetes cluster.local in-addr.arpa {
        manifests `+examples+`
    }
    template IN A example.org {
        rcode SERVFAIL
    }
}
`)
	write(t, filepath.Join(dir, "bad"), ".:53 {\n nosuch\n}\n")
	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"--pcap PCAP --manifests EXAMPLES", "16 queries in 296ms of the capture: 16 with a response, 0 without, 0 sent again\n15 compared", "", 0},
		{"--pcap PCAP --manifests EXAMPLES", "response codes:        NXDOMAIN 8 (50 %), NOERROR 7 (44 %), SERVFAIL 1 (6 %)\nfor search paths:      6 of 8 NXDOMAIN responses, 38 % of the queries\n", "", 0},
		{"--pcap PCAP --manifests EXAMPLES", "answered by:           kubernetes 15 (100 %)\nqueries to upstreams:  0, for 0 % of the queries", "", 0},
		{"--pcap PCAP", "16 compared in ", "", 0}, // the Corefile of the directory
		{"--pcap PCAP", "answered by:           kubernetes 15 (94 %), template 1 (6 %)", "", 0},
		{"--pcap PCAP --manifests CHANGED", "Service: other records, 3 times (A)\n  example: web.shop.svc.cluster.local. A from 127.0.0.1 at 2026-11-24T10:0", "", 1},
		{"--pcap PCAP --manifests CHANGED", "    - NOERROR\n    - web.shop.svc.cluster.local. 5 A 10.96.10.99\n    + NOERROR\n    + web.shop.svc.cluster.local. 5 A 10.96.10.10\n", "", 1},
		{"--pcap PCAP --manifests CHANGED --limit 1", "1 query in 0s of the capture: 1 with a response", "", 1},
		{"--pcap PCAP --manifests CHANGED --limit 1", "Service: other records, 1 time (A)\n", "", 1},
		{"--pcap PCAP --manifests EXAMPLES", "not used (1): queries for names outside the zones of the cluster", "", 0},
		{"--pcap PCAP --manifests CHANGED --fail-on none", "other records", "", 0},
		{"--pcap PCAP --manifests EXAMPLES --limit 3", "3 with a response", "", 0},
		{"--pcap PCAP --manifests EXAMPLES --duration 100ms", " of the capture: ", "", 0},
		{"--pcap PCAP --manifests EXAMPLES --to 127.0.0.53", "16 with a response", "", 0},
		{"--pcap PCAP --manifests EXAMPLES --to 127.0.0.53 --pace captured", "16 with a response", "", 0},
		{"--pcap PCAP --manifests EXAMPLES --to 127.0.0.54", "packets from and to other addresses or ports (--to, --port)", "no query was captured: set --port and --to", 2},
		{"--pcap PCAP --manifests EXAMPLES --port 54", "", "no query was captured: set --port and --to", 2},
		{"--pcap cuts.pcap --manifests EXAMPLES", "packets that are malformed or cut short", "no query was captured: the report counts by reason what was not used", 2},
		{"--pcap cut.pcap --manifests EXAMPLES", "compared", "the capture is cut short: unexpected EOF", 2},
		{"--pcap text --manifests EXAMPLES", "", "want a capture in the format pcap or pcapng, got a file that begins with 74657874", 2},
		{"--dnstap text --manifests EXAMPLES", "", "want a Frame Streams file of dnstap messages: it does not begin with a control frame", 2},
		{"--pcap nosuch --manifests EXAMPLES", "", "reading the capture: open nosuch: no such file or directory", 2},
		{"--pcap PCAP --manifests nosuch", "", "nosuch", 2},
		{"--pcap PCAP --conf bad", "", "bad:2: unknown directive \"nosuch\"", 2},
		{"--pcap PCAP --server dns://:54", "", "no such server: \"dns://:54\"; the servers are dns://:53", 2},
		{"--dnstap unix:nosuch/socket --manifests EXAMPLES", "", "--dnstap: listen unix nosuch/socket: bind: no such file or directory", 2},
		{"--pcap PCAP --against 127.0.0.1:1", "", "check the address, and whether the server can be reached from here", 2},
		{"", "", "want --pcap FILE or --dnstap FILE|unix:PATH|tcp:HOST:PORT", 2},
		{"--pcap x --dnstap y", "", "set only one of --pcap and --dnstap", 2},
		{"--pcap x --conf y --manifests z", "", "set only one of --conf, --manifests and --against", 2},
		{"--pcap - --conf -", "", "standard input is the capture", 2},
		{"--pcap x --against y --server z", "", "it has no meaning with --against", 2},
		{"--pcap x --against y:0", "", "--against: want HOST[:PORT]", 2},
		{"--pcap x --to y", "", "--to: want an IP address, got \"y\"", 2},
		{"--pcap x --port 0", "", "--port: want 1..65535, got 0", 2},
		{"--pcap x --rate 0", "", "--rate: want 1..1000000, got 0", 2},
		{"--pcap x --pace y", "", "--pace: want fast or captured, got \"y\"", 2},
		{"--dnstap tcp:127.0.0.1:0 --pace captured", "", "--pace captured is for files: queries from a socket are asked when they come", 2},
		{"--pcap x --limit -1", "", "--limit: want a positive number, got -1", 2},
		{"--pcap x --duration -1s", "", "--duration: want a positive duration, got -1s", 2},
		{"--pcap x --timeout 0s", "", "--timeout: want a positive duration, got 0s", 2},
		{"--pcap x --fail-on y", "", "--fail-on: want diff, all or none, got \"y\"", 2},
		{"--pcap x --output y", "", "--output: want text or json, got \"y\"", 2},
		{"x", "", "want no arguments, got \"x\"", 2},
	} {
		args := c.args
		if strings.Contains(args, "CHANGED") {
			args = strings.ReplaceAll(args, "CHANGED", changed(t))
		}
		args = strings.NewReplacer("EXAMPLES", examples, "PCAP", traffic).Replace(args)
		out, errors, code := run(t, dir, "", append([]string{"shadow"}, strings.Fields(args)...)...)
		if !strings.Contains(out, c.out) || !strings.Contains(errors, c.err) || code != c.code {
			t.Errorf("shadow %s: got status %d and\n%s%s, want %d, %q and %q", c.args, code, out, errors, c.code, c.out, c.err)
		}
	}
}

// A capture can be piped, and names from it reach no terminal as they are.
func TestShadowPipe(t *testing.T) {
	traffic, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ".:53 {\n template ANY ANY {\n rcode REFUSED\n}\n}\n")
	for _, output := range []string{"text", "json"} {
		out, stderr, code := run(t, dir, string(traffic), "shadow", "--pcap", "-", "--output", output)
		if code != 1 || strings.Contains(out+stderr, "\x1b") || !strings.Contains(out, "instead of REFUSED") {
			t.Errorf("%s: got status %d and\n%s%s, want differences without escape characters", output, code, out, stderr)
		}
	}
}

// A pipe that stays open ends at a signal, and after --duration.
func TestShadowPipeOpen(t *testing.T) {
	long(t)
	t.Parallel()
	traffic, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		cut  int // bytes that are missing at the end
		want int // queries with a response
	}{
		{"signal", nil, 0, 16},
		{"signal in a packet", nil, 10, 16}, // of the end of a connection
		{"duration", []string{"--duration", "1s"}, 0, 16},
	} {
		command, out, stderr := shadowOfExamples(t, append([]string{"--pcap", "-"}, c.args...)...)
		in, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
		defer stuck.Stop()
		if _, err := in.Write(traffic[:len(traffic)-c.cut]); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(stderr); lines.Scan(); { // the progress
			if strings.HasPrefix(lines.Text(), fmt.Sprintf("%d queries with a response", c.want)) && c.args == nil {
				if err := command.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				c.args = []string{}
			}
		}
		r, code := ended(t, command, out)
		if code != 0 || r.Answered != c.want || r.Same+r.Skipped["no_zone"] != c.want {
			t.Errorf("%s: got %+v and status %d, want %d equal answers", c.name, r, code, c.want)
		}
		_ = in.Close()
	}
}

// shadowOfExamples returns a command shadow with the folder examples, its output, and its errors, which have the progress.
func shadowOfExamples(t *testing.T, args ...string) (c *exec.Cmd, out *bytes.Buffer, stderr io.Reader) {
	t.Helper()
	args = append([]string{"shadow", "--manifests", absolute(t, "../examples"), "--output", "json"}, args...)
	c, out = program.Command(t, t.TempDir(), args...), new(bytes.Buffer)
	c.Stdout = out
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	return c, out, stderr
}

// shadowServer starts a server of the folder examples, whose dnstap messages, if any, go
// to the address. It queries nothing.
func shadowServer(t *testing.T, tap string) *process {
	t.Helper()
	dir := t.TempDir()
	if tap != "" {
		tap = "dnstap " + tap + " full"
	}
	ready := "127.0.0.1:" + freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), ". {\n"+tap+"\n ready "+ready+"\n kubernetes cluster.local in-addr.arpa {\n manifests "+absolute(t, "../examples")+"\n}\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile", "--listen", "127.0.0.1:0")
	chaintest.Eventually(t, "the data are complete", func() bool {
		response, err := http.Get("http://" + ready + "/ready")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

func TestShadowAgainst(t *testing.T) {
	server := shadowServer(t, "")
	defer server.stop()
	r, stderr, code := shadowJSON(t, t.TempDir(), "", "--pcap", absolute(t, capture), "--against", "127.0.0.1:"+server.ports[0])
	if code != 0 || r.Compared != 16 || r.Same != 16 || r.SearchPath != 6 || len(r.Directives) > 0 {
		t.Errorf("got %+v, error output %q and status %d, want 16 equal answers", r, stderr, code)
	}
}

// listenShadow starts the command shadow on a socket for dnstap, and returns the socket's address.
func listenShadow(t *testing.T, socket string, args ...string) (c *exec.Cmd, address string, out *bytes.Buffer) {
	t.Helper()
	c = program.Command(t, t.TempDir(), append([]string{"shadow", "--dnstap", socket, "--output", "json", "--quiet"}, args...)...)
	out = new(bytes.Buffer)
	c.Stdout = out
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	line, err := lines.ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSuffix(line, ". Ctrl-C ends.\n"), "Waiting for dnstap messages at ")
	if err != nil || !ok {
		t.Fatalf("got %q and error %v, want the address", line, err)
	}
	go func() { _, _ = io.Copy(os.Stderr, lines) }() // ends with the process
	return c, address, out
}

// ended waits for the end of c, and returns its report and status.
func ended(t *testing.T, c *exec.Cmd, out *bytes.Buffer) (r shadowReport, code int) {
	t.Helper()
	stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer stuck.Stop()
	_ = c.Wait()
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("got error %v in output %q, status %d, want JSON", err, out, c.ProcessState.ExitCode())
	}
	return r, c.ProcessState.ExitCode()
}

// A stream of dnstap messages of a server is compared until the limit or a signal.
func TestShadowStream(t *testing.T) {
	for _, c := range []struct {
		name, socket, manifests string
		limit                   bool
		code                    int
	}{
		{"TCP", "tcp:127.0.0.1:0", "", true, 0},
		{"Unix domain socket and a signal", "unix:" + filepath.Join(t.TempDir(), "s"), "", false, 0},
		{"difference", "tcp:127.0.0.1:0", "changed", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := absolute(t, "../examples")
			if c.manifests != "" {
				folder = changed(t)
			}
			args := []string{"--manifests", folder}
			if c.limit {
				args = append(args, "--limit", "5")
			}
			command, address, out := listenShadow(t, c.socket, args...)
			tap := "tcp://" + address
			if strings.HasPrefix(c.socket, "unix") {
				tap = address
			}
			server := shadowServer(t, tap)
			stopped := false
			defer func() {
				if !stopped {
					server.stop()
				}
			}()
			for range 5 {
				if _, err := ask("udp", server.ports[0], "web.shop.svc.cluster.local.", dns.TypeA); err != nil {
					t.Fatal(err)
				}
			}
			if !c.limit {
				// The messages are sent before the connection ends.
				server.stop()
				stopped = true
				if err := command.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
			r, code := ended(t, command, out)
			if code != c.code || r.Answered != 5 || r.Compared != 5 || r.Same+r.Different != r.Compared || (r.Different > 0) != (c.code > 0) {
				t.Errorf("got %+v and status %d, want five queries and status %d", r, code, c.code)
			}
		})
	}
}

// A stream that no server sends to ends after --duration.
func TestShadowNoStream(t *testing.T) {
	command, address, out := listenShadow(t, "tcp:127.0.0.1:0", "--manifests", absolute(t, "../examples"), "--duration", "50ms")
	if _, _, err := net.SplitHostPort(address); err != nil {
		t.Error(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
	defer stuck.Stop()
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 2 || out.Len() > 0 {
		t.Errorf("got status %d and %q, want 2: no query", code, out)
	}
}
