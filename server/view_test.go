package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// viewing returns the directives of these tests and view NAME.
func viewing() Options {
	opts := options()
	opts.Directives = append(opts.Directives, config.Directive{Name: "view", Setup: func(b *config.Block, uses []corefile.Directive) error {
		b.Chain.View = uses[0].Args[0].Text
		b.Chain.Match = func(q *dns.Query) bool { return strings.HasPrefix(string(q.Name()[1:]), b.Chain.View) }
		return nil
	}})
	return opts
}

func TestViewsOfOneZone(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"two and the rest", "a {\n view x\n}\na {\n view y\n}\na {\n}\n", ""},
		{"without the rest", "a {\n view x\n}\na {\n view y\n}\n", ""},
		{"one name, two zones", "a {\n view x\n}\nb {\n view x\n}\n", ""},
		{"one name, two ports", "a:1 {\n view x\n}\na:2 {\n view x\n}\n", ""},
		{"one name twice", "a {\n view x\n}\na b {\n view x\n}\n",
			"Corefile:4: a: view x of zone a. is already served on dns://:1053 by a at Corefile:1"},
		{"after the rest", "a {\n}\na {\n view x\n}\n", ""}, // with a warning
		{"the rest twice", "a {\n view x\n}\na {\n}\na {\n}\n",
			"Corefile:6: a: zone a. is already served on dns://:1053 by a at Corefile:4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := planOf(c.text, viewing())
			if err == nil && c.want != "" || err != nil && err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestDescribeView(t *testing.T) {
	p, err := planOf("a {\n view x\n code 1\n}\na {\n code 2\n}\n", viewing())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.Describe(&b); err != nil {
		t.Fatal(err)
	}
	const want = `dns://:1053 zone a. view x (Corefile:1)
  code  answers at once
dns://:1053 zone a. (Corefile:5)
  code  answers at once
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The first view that matches serves the query. A query that no view matches goes
// to the block of the parent zone.
func TestServeViews(t *testing.T) {
	const text = `a:0 {
    bind 127.0.0.1
    view xy
    code 1
}
a:0 {
    bind 127.0.0.1
    view x
    code 2
}
:0 {
    bind 127.0.0.1
    code 3
}
`
	p := start(t, text, viewing(), nil)
	defer func() { p.Stop(t.Context()) }()
	want := func(codes string) {
		t.Helper()
		for _, network := range []string{"udp", "tcp"} {
			got := ""
			for _, name := range []string{"xy.a.", "x.a.", "y.a.", "x.b."} {
				got += fmt.Sprint(ask(network, p.Addresses()[0], name))
			}
			if got != codes {
				t.Errorf("response codes over %s: got %s, want %s", network, got, codes)
			}
		}
	}
	want("1233")
	var printed strings.Builder
	p.printAddresses(&printed)
	if got := strings.Count(printed.String(), "a.:"); got != 1 {
		t.Errorf("zone a. is listed %d times, want once:\n%s", got, &printed)
	}
	p = start(t, strings.Replace(text, "view xy", "view y", 1), viewing(), p)
	want("2213")
}
