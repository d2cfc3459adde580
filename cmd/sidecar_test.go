package cmd_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/program"
)

func TestSidecarCommandLine(t *testing.T) {
	for _, c := range []struct {
		args, out, err string // what they contain
		code           int
	}{
		{"sidecar --help", "--prometheus-namespace", "", 0},
		{"sidecar --version", "Seamark-test\nlinux/", "", 0},
		{"sidecar -version -logtostderr -v=2 --vmodule=a=1", "Seamark-test\n", "", 0},
		{"sidecar --version --log_dir=/tmp --dnsmasq_poll_interval_ms=1", "Seamark-test\n", "", 0},
		{"sidecar --probe=a", "", `seamark: invalid argument "a" for "--probe" flag: invalid format to --probe: want LABEL,SERVER`, 2},
		{"sidecar -probe=a-b,c,d", "", `label must be of format ^[a-zA-Z0-9_]+$`, 2},
		{"sidecar --probe a,b,c,0.5", "", `parsing "0.5": invalid syntax`, 2},
		{"sidecar --probe=a,b,c,5,MX", "", "invalid type for DNS: MX", 2},
		{"sidecar --probe=a,b,c --probe=a,b,d", "", "--probe: two probes have the label a", 2},
		{"sidecar --dnsmasq-poll-interval-ms=0", "", "--dnsmasq-poll-interval-ms: want at least 1, got 0", 2},
		{"sidecar --dnsmasq-port=70000", "", "want a port of 0..65535", 2},
		{"sidecar --prometheus-port=x", "", "want a port of 0..65535", 2},
		{"sidecar --prometheus-path=metrics", "", "--prometheus-path: ", 2},
		{"sidecar --nonsense", "", "unknown flag: --nonsense", 2},
		{"sidecar more", "", "want no arguments, got \"more\"", 2},
		{"sidecar --prometheus-addr=192.0.2.1 --prometheus-port=0", "", "cannot assign requested address", 1},
	} {
		out, stderr, code := run(t, t.TempDir(), "", strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nerr %s", c.args, code, c.code, out, stderr)
		}
	}
}

// A binary called sidecar accepts the flags of the pod's manifest, probes a server, and
// ends after SIGTERM while another probe waits for a reply.
func TestSidecar(t *testing.T) {
	server := serve(t, "..", "", "serve", "--manifests", "examples", "--listen", "127.0.0.1:0")
	server.until("  dig @127.0.0.1") // it waits for the data
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_, mutePort, _ := net.SplitHostPort(mute.LocalAddr().String())

	c := program.Command(t, t.TempDir(),
		"--v=2", "--logtostderr", "--stderrthreshold=INFO",
		"--probe=kubedns,127.0.0.1:"+server.ports[0]+",web.shop.svc.cluster.local,1,A",
		"--probe=mute,"+mute.LocalAddr().String()+",web.shop.svc.cluster.local,1,SRV",
		"-dnsmasq-port="+mutePort, "--prometheus-addr=127.0.0.1", "--prometheus-port=0", "-prometheus-namespace", "pod")
	c.Args[0] = "/usr/bin/sidecar"
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	base, log := "", bufio.NewScanner(stderr)
	for base == "" && log.Scan() {
		if _, rest, ok := strings.Cut(log.Text(), "Serving status pages address="); ok {
			base, _, _ = strings.Cut(rest, " ")
		} else if !strings.Contains(log.Text(), "flags=--stderrthreshold") {
			t.Errorf("got log %s, want the address of the status pages", log.Text())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	page := func(path string) (code int, body string) {
		r, err := http.Get("http://" + base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	within := time.Now().Add(time.Minute)
	for {
		code, body := page("/healthcheck/kubedns")
		if code == http.StatusOK && strings.HasPrefix(body, `{"IsOk":true,"LatencySeconds":0.`) {
			break
		}
		if time.Now().After(within) {
			t.Fatalf("/healthcheck/kubedns: got %d %s after a minute, want 200 and IsOk", code, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if code, body := page("/metrics"); code != http.StatusOK || !strings.Contains(body, "\npod_probe_kubedns_latency_ms_count ") || !strings.Contains(body, "\npod_dnsmasq_hits 0\n") {
		t.Errorf("/metrics: got %d and\n%s\nwant 200, pod_probe_kubedns_latency_ms_count and pod_dnsmasq_hits 0", code, body)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGTERM: got %v, want exit status 0", err)
	}
	server.stop()
}

// The section Flags of a command's page refers to the help, and names only flags that this has.
func TestCommandReferenceFlags(t *testing.T) {
	for _, command := range []string{"sidecar", "kube-dns", "exec-healthz", "kube2sky", "skydns", "dnsmasq-nanny", "node", "resolvconf"} {
		page := read(t, "../docs/reference/"+command+".md")
		_, page, _ = strings.Cut(page, "\n## Flags\n")
		page, _, _ = strings.Cut(page, "\nThese are rejected")
		page, _, _ = strings.Cut(page, "\n## ")
		if !strings.Contains(page, "`seamark "+command+" --help`") {
			t.Errorf("docs/reference/%s.md: want a reference to the help in the section Flags", command)
		}

		help, _, _ := run(t, t.TempDir(), "", command, "--help")
		named := regexp.MustCompile("`--?([a-zA-Z0-9-]+)[=` ]").FindAllStringSubmatch(strings.ReplaceAll(page, "`seamark "+command+" --help`", ""), -1)
		for _, m := range named {
			if !slices.Contains(klogFlags, m[1]) && !regexp.MustCompile("(?m)^ +(-[a-z], )?--"+m[1]+" ").MatchString(help) {
				t.Errorf("docs/reference/%s.md: --%s is not in the help", command, m[1])
			}
		}
		if len(named) == 0 && command != "resolvconf" {
			t.Errorf("docs/reference/%s.md: got no flag in the section Flags, want some", command)
		}
	}
}

// klogFlags are flags that pages name and that the help omits, since they have no effect.
var klogFlags = []string{"vmodule", "log-dir"}
