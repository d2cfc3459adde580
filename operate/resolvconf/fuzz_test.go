package resolvconf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The file of any texts keeps the limits, and a resolver that reads it finds the words
// of the texts.
func FuzzForm(f *testing.F) {
	f.Add("kind: Pod\nspec: "+spec, "nameserver 192.0.2.1\nsearch a b\noptions ndots:2\n", true)
	f.Add(`{"kind": "Job", "spec": {"template": {"spec": {"dnsConfig": {"searches": ["a."]}}}}}`, "search .\nnameserver fe80::1%eth0\n", false)
	f.Add("kind: List\nitems: [&a {kind: Pod, spec: {dnsPolicy: Default}}]\n", "options a:b a\n domain x", false)
	f.Fuzz(func(t *testing.T, manifest, file string, dns bool) {
		node, _, err := ParseNode("node.conf", []byte(file))
		if err != nil {
			return
		}
		m, _, err := ParseManifest("a.yaml", []byte(manifest))
		if err != nil {
			return
		}
		p, _, err := m.Pod(Flags{})
		if err != nil {
			return
		}
		k := Kubelet{ClusterDomain: "cluster.local", Node: &node}
		if dns {
			k.ClusterDNS = []netip.Addr{netip.MustParseAddr("10.96.0.10")}
		}
		c, _ := k.Form(p)
		if slices.ContainsFunc(c.Options, func(o Option) bool { return strings.Contains(o.String(), "\n") }) {
			return // it is written as it is, lines and all, and there is a comment on it
		}
		if len(c.Nameservers) > maxNameservers || len(c.Searches) > maxSearches || len(strings.Join(c.Searches, " ")) > maxSearchChars ||
			slices.ContainsFunc(c.Searches, func(s string) bool { return len(s) > maxName }) {
			t.Errorf("beyond the limits:\n%s", c)
		}
		again, _, err := ParseNode("pod.conf", []byte(c.String()))
		if err != nil || !slices.Equal(again.Nameservers, c.Nameservers) || len(again.Searches) != len(c.Searches) {
			t.Errorf("%v: written\n%sread\n%s", err, c, again)
		}
	})
}
