package directive

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// interfaces returns the addresses of a machine with the interfaces lo and eth0, and
// an error for broken0.
func interfaces(name string) (ips []netip.Addr, err error) {
	texts := map[string]string{"lo": "127.0.0.1 ::1", "eth0": "192.0.2.1 2001:db8::1 fe80::1%eth0"}[name]
	for text := range strings.FieldsSeq(texts) {
		ips = append(ips, netip.MustParseAddr(text))
	}
	if name == "broken0" {
		err = errors.New("no permission")
	}
	return ips, err
}

func TestBind(t *testing.T) {
	for _, c := range []struct{ body, want, err string }{
		{"bind 127.0.0.1", "127.0.0.1", ""},
		{"bind 127.0.0.1 ::1", "127.0.0.1 ::1", ""},
		{"bind ::ffff:127.0.0.1 fe80::2%eth0", "127.0.0.1 fe80::2%eth0", ""},
		{"bind lo eth0", "127.0.0.1 ::1 192.0.2.1 2001:db8::1 fe80::1%eth0", ""},
		{"bind lo 127.0.0.1 lo", "127.0.0.1 ::1", ""},
		{"bind lo\nbind eth0 {\n except 2001:db8::1 fe80::1%eth0\n}", "127.0.0.1 ::1 192.0.2.1", ""},
		{"bind eth0 lo {\n except lo\n except 192.0.2.1\n}", "2001:db8::1 fe80::1%eth0", ""},
		{"bind", "", "Corefile:2: bind: want at least 1 argument, got 0"},
		{"bind eth1", "", `Corefile:2: bind: want an IP address or the name of an interface that has one, got "eth1"`},
		{"bind broken0", "", "Corefile:2: bind: reading the addresses of interface broken0: no permission"},
		{"bind lo {\n except lo\n}", "", "Corefile:2: bind: no address is left to listen on"},
		{"bind lo {\n except eth9\n}", "127.0.0.1 ::1", `Corefile:3: bind: except: want an IP address or the name of an interface that has one, got "eth9"`},
		{"bind lo {\n excpt lo\n}", "127.0.0.1 ::1", `Corefile:3: bind: unknown option "excpt"; did you mean "except"?`},
	} {
		servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+c.body+"\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		b := new(config.Block)
		err = BindWith(interfaces)(b, servers[0].Directives)
		var got []string
		for _, a := range b.Bound() {
			got = append(got, a.IP.String())
		}
		text := ""
		if err != nil {
			text = corefile.Sorted(err).Error()
		}
		if strings.Join(got, " ") != c.want || text != c.err {
			t.Errorf("%s: got %s, %s\nwant %s, %s", c.body, got, text, c.want, c.err)
		}
	}
}
