package cmd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A server releases the pages of its file that only the start has used, and answers after that.
func TestFilePagesAfterStart(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), "example.org:0 {\n bind 127.0.0.1\n whoami\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	most, now := 0, 0
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		now = p.residentFile()
		if most = max(most, now); now <= most*3/4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("resident pages of files: %d kB, at most %d kB before, want a quarter of them released", now, most)
		}
	}
	if reply, err := ask("udp", p.ports[0], "a.example.org.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeSuccess {
		t.Errorf("a.example.org. A: got %v, error %v", reply, err)
	}
	p.stop()
}

// residentFile returns the resident memory of the process that is backed by files, in kB.
func (p *process) residentFile() int {
	p.t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.Process.Pid) + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "RssFile:")
	value, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.Atoi(value)
	if err != nil {
		p.t.Fatalf("RssFile in %s: %v", text, err)
	}
	return n
}
