package directive

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// FuzzACL: the list of any lines decides as the lines do when their words are read one after the
// other, for clients at both sides of each end of their networks. An error names the line's option.
func FuzzACL(f *testing.F) {
	f.Add("allow net 10.0.0.0/8 10.1.0.0/16\nblock net 10.0.0.1\nblock net ::ffff:10.0.0.0/104 fe80::1%eth0\nfilter")
	f.Add("block type A AAAA net 192.168.0.0/16\nblock net fd00::/8 type AAAA A\ndrop type * MX")
	f.Add("drop net * 10.0.0.1\nALLOW NET 10.0.0.256\nblock A\nblock type net\nblock type A net")
	f.Add("filter type TYPE65 net 0.0.0.0/0\nfilter net ::/0 type HTTPS\nblock type TYPE0")

	f.Fuzz(func(t *testing.T, text string) {
		var list aclList
		var kept [][]string
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			action := slices.Index(aclActions[:], strings.ToLower(words[0]))
			if action < 0 {
				continue
			}
			o := corefile.Directive{Path: "acl: " + words[0]}
			for _, word := range words[1:] {
				o.Args = append(o.Args, corefile.Token{Text: word})
			}

			parsed, err := parseACLLine(aclAction(action), o)
			if err != nil {
				if !strings.Contains(err.Error(), o.Path) {
					t.Errorf("%q: got error %v, want one that names %s", line, err, o.Path)
				}
				continue
			}
			list.add(parsed)
			kept = append(kept, append([]string{aclActions[action]}, words[1:]...))
		}

		for _, client := range aclClients(kept) {
			for _, qtype := range []wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeMX, wire.TypeHTTPS} {
				got := ""
				if i := slices.IndexFunc(list.lines, func(l aclLine) bool { return l.matches(qtype, client) }); i >= 0 {
					got = aclActions[list.lines[i].action]
				}
				if want := aclDecides(kept, qtype, client); got != want {
					t.Fatalf("%q: client %s, type %s: got %q, want %q", text, client, qtype, got, want)
				}
			}
		}
	})
}

// aclClients returns the first and the last address of each network of lines, and the ones beside.
func aclClients(lines [][]string) []netip.Addr {
	clients := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, word := range slices.Concat(lines...) {
		p, err := config.ParseSource(word)
		if err != nil || len(clients) > 100 {
			continue
		}
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), end, end.Next()} {
			if a.IsValid() {
				clients = append(clients, a.Unmap())
			}
		}
	}
	return clients
}

// aclDecides returns the action of the first line that matches, or "".
func aclDecides(lines [][]string, qtype wire.Type, client netip.Addr) string {
	for _, line := range lines {
		ok := map[string]bool{"type": true, "net": true}
		seen, matched, section := map[string]bool{}, map[string]bool{}, ""
		for _, word := range line[1:] {
			if w := strings.ToLower(word); w == "type" || w == "net" {
				section = w
				continue
			}
			t, isType := wire.ParseType(word)
			p, err := config.ParseSource(word)
			seen[section] = true
			if word == "*" || section == "type" && isType && t == qtype ||
				section == "net" && err == nil && p.Contains(client) {
				matched[section] = true
			}
		}
		for section := range seen {
			ok[section] = matched[section]
		}
		if ok["type"] && ok["net"] {
			return line[0]
		}
	}
	return ""
}
