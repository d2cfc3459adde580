package kubedns

import (
	"fmt"
	"testing"
)

func parsed(t *testing.T, stubs, ups string) Config {
	t.Helper()
	c, err := Parse(map[string]string{stubDomains: stubs, upstreams: ups})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestForwards(t *testing.T) {
	for _, c := range []struct{ stubs, ups, want string }{
		{`{}`, `[]`, "[{. [/etc/resolv.conf]}]"},
		{`{}`, `["8.8.8.8", "[2001:db8::1]:5353", "8.8.8.8:53"]`, "[{. [8.8.8.8:53 [2001:db8::1]:5353]}]"},
		{`{"b": ["ns.foo.com", "1.1.1.1:54", "ns.foo.com"], "a.b": ["::1", "::1"]}`, `["8.8.8.8"]`,
			"[{a.b [[::1]:53]} {b [ns.foo.com 1.1.1.1:54]} {. [8.8.8.8:53]}]"},
	} {
		if got := fmt.Sprint(parsed(t, c.stubs, c.ups).Forwards()); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestEqual(t *testing.T) {
	base := parsed(t, `{"a": ["1.1.1.1", "b"], "c": ["d"]}`, `["1.1.1.1", "2.2.2.2"]`)
	for _, c := range []struct {
		stubs, ups string
		equal      bool
	}{
		{`{"c": ["d"], "a": ["1.1.1.1:53", "b"]}`, `["1.1.1.1:53","2.2.2.2"]`, true},
		{`{"a": ["b", "1.1.1.1"], "c": ["d"]}`, `["1.1.1.1", "2.2.2.2"]`, false},
		{`{"a": ["1.1.1.1"], "c": ["d"]}`, `["1.1.1.1", "2.2.2.2"]`, false},
		{`{"a": ["1.1.1.1", "b"]}`, `["1.1.1.1", "2.2.2.2"]`, false},
		{`{"a": ["1.1.1.1", "b"], "e": ["d"]}`, `["1.1.1.1", "2.2.2.2"]`, false},
		{`{"a": ["1.1.1.1", "b"], "c": ["d"]}`, `["2.2.2.2", "1.1.1.1"]`, false},
	} {
		if got := base.Equal(parsed(t, c.stubs, c.ups)); got != c.equal {
			t.Errorf("%s %s: %v", c.stubs, c.ups, got)
		}
	}
	with := base
	with.Federations = []Federation{{"a", "b"}}
	if base.Equal(with) || !with.Equal(with) || !(Config{}).Equal(parsed(t, `null`, `[]`)) {
		t.Error("federations, or nothing")
	}
}
