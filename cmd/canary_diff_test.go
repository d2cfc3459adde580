package cmd

import (
	"errors"
	"testing"

	"github.com/seamark/seamark/builtin"
)

// The Corefile of a cluster is read without files that only its pods have.
func TestReadableCorefile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"snippet", "(common) {\n ttl 17\n}\n. {\n kubernetes cluster.local {\n  import common\n }\n}\n", ""},
		{"pattern", ". {\n import custom/*.override\n kubernetes cluster.local\n}\n", ""},
		{"file", ". {\n import /none/of/this/computer\n kubernetes cluster.local\n}\n", ". {\n kubernetes cluster.local\n}\n"},
		{"invalid", ". {\n kubernetes cluster.local {\n", ""},
	} {
		if c.want == "" {
			c.want = c.text
		}
		if got := readable(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A Corefile of a container is checked for the port at which its server listens: a block without a port is at 53.
func TestCanaryCorefileWithZoneTwice(t *testing.T) {
	p := &program{directives: builtin.Directives()}
	for text, want := range map[string]string{
		".:53 {\n whoami\n}\n. {\n whoami\n}\n":                "/etc/coredns/Corefile:4: .: zone . is already served on dns://:53 by .:53 at /etc/coredns/Corefile:1",
		".:1053 {\n whoami\n}\n. {\n whoami\n}\n":              "",
		".:53 {\n whoami\n}\nexample.org {\n whoami\n}\n":      "",
		"a {\n whoami\n}\n.:53 {\n whoami\n}\na:53 {\n log\n}": "/etc/coredns/Corefile:7: a:53: zone a. is already served on dns://:53 by a at /etc/coredns/Corefile:1",
	} {
		errs, warnings := p.checkMounted("/etc/coredns/Corefile", map[string]string{"/etc/coredns/Corefile": text})
		if err := errors.Join(errs...); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) || len(warnings) > 0 {
			t.Errorf("%q: got error %v and warnings %v, want %q", text, err, warnings, want)
		}
	}
}
