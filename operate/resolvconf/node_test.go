package resolvconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseNode(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
		comments         []string
	}{
		{"plain", "nameserver 192.0.2.1\nsearch a.example b.example\noptions edns0 trust-ad\n",
			"nameserver 192.0.2.1\nsearch a.example b.example\noptions edns0 trust-ad\n", nil},
		{"empty", "", "", nil},
		{"remarks", "# nameserver 192.0.2.7\n; nameserver 192.0.2.8\n  # x\n;\n\n \t\n#nameserver 192.0.2.9\nnameserver 192.0.2.1\n",
			"nameserver 192.0.2.1\n", nil},
		{"tabs, spaces, carriage returns, no end", "\tnameserver\t192.0.2.1 \r\n  search\ta\t b\r\noptions ndots:2", "nameserver 192.0.2.1\nsearch a b\noptions ndots:2\n", nil},
		{"families", "nameserver 2001:db8::1\nnameserver 192.0.2.1\n", "nameserver 2001:db8::1\nnameserver 192.0.2.1\n", nil},
		{"more nameservers than a pod may have", strings.Repeat("nameserver 192.0.2.1\n", 4), strings.Repeat("nameserver 192.0.2.1\n", 4), nil},
		{"trailing dots", "search a.example. b. .\n", "search a.example b .\n", nil},
		{"the root alone", "search .\n", "search .\n", nil},
		{"the last search line counts", "search a b\nnameserver 192.0.2.1\nsearch c\n", "nameserver 192.0.2.1\nsearch c\n",
			[]string{"node.conf:3: this search line replaces line 1"}},
		{"if it is empty as well", "search a b\nsearch\n", "", []string{"node.conf:2: this search line replaces line 1"}},
		{"options add up, the last of a name counts", "options ndots:2 edns0\noptions timeout:1 ndots:3 edns0\n", "options ndots:3 edns0 timeout:1\n", nil},
		{"domain", "domain a.example\nnameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", []string{"node.conf:1: the kubelet ignores domain: use search"}},
		{"domain does not replace search", "search a\ndomain b\n", "search a\n", []string{"node.conf:2: the kubelet ignores domain"}},
		{"sortlist", "sortlist 192.0.2.0/24\n", "", []string{"node.conf:1: the kubelet ignores sortlist"}},
		{"an unknown word", "nameservers 192.0.2.1\nNameserver 192.0.2.1\n", "",
			[]string{`node.conf:1: the kubelet ignores this line: unknown keyword "nameservers"`, `node.conf:2: the kubelet ignores this line: unknown keyword "Nameserver"`}},
		{"words behind the address", "nameserver 192.0.2.1 192.0.2.2 # two\n", "nameserver 192.0.2.1\n", []string{"node.conf:1: nameserver takes one address, ignored: 192.0.2.2 # two"}},
		{"a remark behind names", "search a # office\n", "search a # office\n", []string{`node.conf:1: a comment needs a line of its own: "#" becomes part of the search line`}},
		{"a remark behind options", "options edns0 ;x\n", "options edns0 ;x\n", []string{`node.conf:1: a comment needs a line of its own: ";x" becomes part of the options line`}},
		{"not an address", "nameserver dns.example\n", "nameserver dns.example\n", []string{"node.conf:1: nameserver dns.example: not an IP address; pods get it nevertheless"}},
		{"an interface of the node's", "nameserver fe80::1%eth0\n", "nameserver fe80::1%eth0\n", []string{"node.conf:1: nameserver fe80::1%eth0: the interface eth0 exists on the node"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, comments, err := ParseNode("node.conf", []byte(tc.text))
			if err != nil || c.String() != tc.want {
				t.Errorf("%v, and\n%swant\n%s", err, c, tc.want)
			}
			expect(t, comments, tc.comments)
		})
	}
}

func TestParseNodeErrors(t *testing.T) {
	_, _, err := ParseNode("node.conf", []byte("nameserver\nsearch a\nnameserver  \n"))
	want := "node.conf:1: nameserver without an address: the kubelet does not start pods with this file: add an address or delete the line\n" +
		"node.conf:3: nameserver without an address: the kubelet does not start pods with this file: add an address or delete the line"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
}

func TestReadNode(t *testing.T) {
	dir := t.TempDir()
	_, _, err := ReadNode(filepath.Join(dir, "none"))
	if want := "reading the resolv.conf: open " + dir + "/none: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}

	large := filepath.Join(dir, "large")
	for size, want := range map[int]string{maxFile: "", maxFile + 1: "reading the resolv.conf: read " + large + ": larger than 10 MB"} {
		if err := os.WriteFile(large, []byte("search a"+strings.Repeat("\n", size-8)), 0o644); err != nil {
			t.Fatal(err)
		}
		c, _, err := ReadNode(large)
		if want == "" && (err != nil || c.String() != "search a\n") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d bytes: %v, want %q; %q", size, err, want, c)
		}
	}
}
