package cmd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The flags of Kubernetes' manifest result in a valid Corefile.
func TestKubeDNSCorefile(t *testing.T) {
	dir := t.TempDir()
	out, errs, code := run(t, dir, "", "kube-dns", "--domain=cluster.local.", "--dns-port=10053", "--config-dir=/kube-dns-config", "--v=2",
		"--logtostderr=true", "-config_period=5s", "--print-corefile")
	if code != 0 || !strings.HasPrefix(out, ".:10053 {\n") {
		t.Fatalf("got exit status %d and\n%s%s\nwant 0 and a block for port 10053", code, out, errs)
	}
	if err := os.WriteFile(dir+"/Corefile", []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := run(t, dir, "", "check", "Corefile"); code != 0 {
		t.Errorf("check of the Corefile: got exit status %d and %s%s, want 0", code, out, errs)
	}
}

func TestKubeDNSFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--dns-port=65536", `invalid argument "65536" for "--dns-port" flag: want a port of 0..65535`},
		{"--domain=a_b. --dns-bind-address=x", "--dns-bind-address: want an IP address, got \"x\"\n--domain: want a name of DNS-1123 labels"},
		{"--config-map=a --config-dir=b", "--config-map and --config-dir: want one of them"},
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"word", `want no arguments, got "word"`},
	} {
		_, errs, code := run(t, t.TempDir(), "", append([]string{"kube-dns"}, strings.Fields(c.args)...)...)
		if code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: got exit status %d and %q, want 2 and %q", c.args, code, errs, c.want)
		}
	}
}

// Each row of the list of kube-dns's defects names tests that exist: scripts of
// testdata/script, or functions of one of the modules.
func TestKubeDNSDefects(t *testing.T) {
	page, err := os.ReadFile("../testdata/script/kube-dns.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || strings.Contains(line, "| test |") {
			continue
		}
		rows++
		for name := range strings.SplitSeq(strings.Trim(cells[2], " |"), ", ") {
			name = strings.Trim(name, "`")
			if _, err := os.Stat("../testdata/script/" + name + ".txt"); err != nil && !strings.Contains(code.String(), "\nfunc "+name+"(") {
				t.Errorf("testdata/script/kube-dns.md: no test %q, for the row %q", name, cells[0])
			}
		}
	}
	if rows < 30 {
		t.Errorf("got %d rows with tests, want 30 or more", rows)
	}
}
