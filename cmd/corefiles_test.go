package cmd_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
)

// The Corefile of kubeadm, as in Kubernetes 1.36.
const kubeadm = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
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
`

// The Corefile of CoreDNS's Helm chart.
const helm = `.:53 {
    errors
    health {
        lameduck 10s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus 0.0.0.0:9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
`

// The stock Corefiles are valid.
func TestCheckStock(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"kubeadm": kubeadm, "helm": helm} {
		write(t, filepath.Join(dir, name), text)
		if out, stderr, code := run(t, dir, "", "check", name); out != name+": OK\n" || stderr != "" || code != 0 {
			t.Errorf("%s: got exit status %d and\n%s%s\nwant 0", name, code, out, stderr)
		}
	}
}

// The texts of errors are part of the interface: operators search for them.
func TestCheckErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, want string }{
		{"not yet", ". {\n errors\n azure\n nomad\n}\n",
			"Corefile:3: azure: not supported: use forward to the provider's resolver, or a copy of the zones with file or secondary\nCorefile:4: nomad: not supported: use hosts or file, with a file that a template of the scheduler writes\n"},
		{"unknown word", ". {\n kubernets cluster.local\n}\n", "Corefile:2: unknown directive \"kubernets\"; did you mean \"kubernetes\"?\n"},
		{"unknown option", ". {\n kubernetes cluster.local {\n  tll 5\n }\n}\n", "Corefile:3: kubernetes: unknown option \"tll\"; did you mean \"ttl\"?\n"},
		{"wrong value", ". {\n kubernetes cluster.local {\n  ttl x\n }\n}\n", "Corefile:3: kubernetes: ttl: want 0..3600, got \"x\"\n"},
		{"wrong arity", ". {\n kubernetes cluster.local {\n  ttl\n }\n}\n", "Corefile:3: kubernetes: ttl: got no arguments, usage: ttl SECONDS\n"},
		{"bad CIDR", ". {\n kubernetes cluster.local 10.0.0.0/33\n}\n",
			"Corefile:2: kubernetes: \"10.0.0.0/33\" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8\n"},
		{"same zone twice", "a {\n whoami\n}\na {\n whoami\n}\n", "Corefile:4: a: zone a. is already served on dns://:53 by a at Corefile:1\n"},
		{"kubernetes twice", ". {\n kubernetes a\n kubernetes b\n}\n",
			"Corefile:3: kubernetes: already given at Corefile:2, and can be given once in a server block\n"},
		{"bind to nothing", ". {\n bind nosuchif0 127.0.0.300\n}\n",
			"Corefile:2: bind: want an IP address or the name of an interface that has one, got \"nosuchif0\"\n" +
				"Corefile:2: bind: want an IP address or the name of an interface that has one, got \"127.0.0.300\"\n"},
		{"every error of the file", "doh://a {\n whoami x\n}\nb {\n lgo\n bind\n}\n",
			"Corefile:1: doh://a: unknown scheme \"doh\", want dns://, tls://, https://, https3://, quic:// or grpc://\n" +
				"Corefile:2: whoami: want no argument, got 1\n" +
				"Corefile:5: unknown directive \"lgo\"; did you mean \"log\"?\n" +
				"Corefile:6: bind: got no arguments, usage: bind ADDRESS|INTERFACE...\n"},
		{"syntax", ". {\n errors\n", "Corefile:1: .: its { is never closed\n"},
		{"nothing", "# nothing\n", "Corefile:1: no server block\n"},
		{"missing kubeconfig", ". {\n kubernetes cluster.local {\n  kubeconfig /nonexistent/config\n }\n}\n",
			"Corefile:2: kubernetes: kubeconfig: open /nonexistent/config: no such file or directory\n"},
		{"missing folder of manifests", ". {\n kubernetes cluster.local {\n  manifests /nonexistent\n }\n}\n",
			"Corefile:2: kubernetes: manifests: open /nonexistent: no such file or directory\n"},
		{"file in place of a folder of manifests", ". {\n kubernetes cluster.local {\n  manifests Corefile\n }\n}\n",
			"Corefile:2: kubernetes: manifests: open Corefile: not a directory\n"},
		{"missing import and more", ". {\n import none\n whoamy\n}\n",
			"Corefile:2: import: no snippet or file none\nCorefile:3: unknown directive \"whoamy\"; did you mean \"whoami\"?\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, filepath.Join(dir, "Corefile"), c.text)
			out, stderr, code := run(t, dir, "", "check", "Corefile")
			if stderr != c.want || out != "" || code != 1 {
				t.Errorf("exit %d\ngot\n%s%s\nwant\n%s", code, out, stderr, c.want)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), `.:53 {
    whoami
    kubernetes cluster.local in-addr.arpa {
        manifests .
        fallthrough
    }
    log
    errors
    ready
    health
}
example.org:5353 {
    bind 127.0.0.1 ::1
    whoami
}
`)
	want := `dns://:53 zone . (Corefile:1)
  kubernetes  may make a query wait
  whoami      answers at once
  seen by errors, log
dns://127.0.0.1:5353 zone example.org. (Corefile:12)
  whoami  answers at once
dns://[::1]:5353 zone example.org. (Corefile:12)
  whoami  answers at once
`
	if out, stderr, code := run(t, dir, "", "plan", "Corefile"); out != want || code != 0 {
		t.Errorf("exit %d\ngot\n%s%s\nwant\n%s", code, out, stderr, want)
	}
}

// A directive that reads a ConfigMap from a cluster warns once about each missing file.
func TestCheckMissingKubeconfig(t *testing.T) {
	for _, directive := range []string{
		"hosts {\n fallthrough\n configmap dns/other hosts\n kubeconfig /nonexistent\n}",
		"kubedns_config kube-system/kube-dns {\n kubeconfig /nonexistent\n}",
	} {
		name, _, _ := strings.Cut(directive, " ")
		want := "stdin:2: " + name + ": kubeconfig: open /nonexistent: no such file or directory\n"
		_, stderr, code := run(t, t.TempDir(), ".:0 {\n"+directive+"\nforward . 192.0.2.1\n}\n", "check", "--strict", "-")
		if stderr != want || code != 1 {
			t.Errorf("check of %q: exit %d, error %q, want exit 1, error %q", directive, code, stderr, want)
		}
	}
}

// Warnings are printed on standard error and do not fail check without --strict.
// "-" is standard input.
func TestCheckWarnings(t *testing.T) {
	const text = ".:0 {\n bind 127.0.0.1\n cache 30s\n}\n"
	const want = "stdin:1: nothing answers here: every query is refused or fails; add a directive such as forward\n" +
		"stdin:3: cache: 30s is a zone here, not a TTL: write a TTL as seconds without a unit\n"
	for _, c := range []struct {
		args     []string
		out, err string
		code     int
	}{
		{[]string{"check", "-"}, "stdin: OK\n", "warning: " + strings.Replace(want, "\n", "\nwarning: ", 1), 0},
		{[]string{"check", "--strict", "-"}, "", want, 1},
	} {
		out, stderr, code := run(t, t.TempDir(), text, c.args...)
		if out != c.out || stderr != c.err || code != c.code {
			t.Errorf("%s: exit %d, out %q, err %q\nwant exit %d, out %q, err %q", c.args, code, out, stderr, c.code, c.out, c.err)
		}
	}
	p := serve(t, t.TempDir(), text, "-conf", "stdin")
	if !strings.Contains(strings.Join(p.before, "\n"), `[WARNING] Corefile warning file=stdin line=3 directive=cache error="30s is a zone here, not a TTL: write a TTL as seconds without a unit"`) {
		t.Errorf("serve logged %q, want the warnings", p.before)
	}
	p.stop()
}

// Standard input has the same limit as files.
func TestStandardInputTooLarge(t *testing.T) {
	long(t)
	text := strings.Repeat("#", corefile.TextLimit+1)
	for _, args := range [][]string{{"check", "-"}, {"-conf", "stdin"}} {
		const want = "reading the Corefile: read stdin: larger than 64 MB\n"
		if _, stderr, code := run(t, t.TempDir(), text, args...); code != 1 || !strings.HasSuffix(stderr, want) {
			t.Errorf("%q with %d bytes: got exit status %d and %q, want 1 and %q", args, len(text), code, stderr, want)
		}
	}
}
