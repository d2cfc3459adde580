package cmd

import "testing"

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
