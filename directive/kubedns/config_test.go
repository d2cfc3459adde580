package kubedns

import "testing"

func parsed(t *testing.T, stubs, ups string) Config {
	t.Helper()
	c, err := Parse(map[string]string{stubDomains: stubs, upstreams: ups})
	if err != nil {
		t.Fatal(err)
	}
	return c
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
