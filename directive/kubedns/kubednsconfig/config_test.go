package kubednsconfig

import "testing"

func mustParse(t *testing.T, stubs, ups string) Config {
	t.Helper()
	c, err := Parse(map[string]string{stubDomains: stubs, upstreams: ups})
	if err != nil {
		t.Fatalf("stubDomains %s, upstreamNameservers %s: %v", stubs, ups, err)
	}
	return c
}

func TestConfigEqual(t *testing.T) {
	base := mustParse(t, `{"a": ["1.1.1.1", "b"], "c": ["d"]}`, `["1.1.1.1", "2.2.2.2"]`)
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
		if got := base.Equal(mustParse(t, c.stubs, c.ups)); got != c.equal {
			t.Errorf("stubDomains %s, upstreamNameservers %s: Equal returned %v, want %v", c.stubs, c.ups, got, c.equal)
		}
	}
	with := base
	with.Federations = []Federation{{"a", "b"}}
	if base.Equal(with) {
		t.Errorf("%v equals %v, want a difference in federations", base, with)
	}
	if !with.Equal(with) {
		t.Errorf("%v: got false for Equal with itself, want true", with)
	}
	if empty := mustParse(t, `null`, `[]`); !(Config{}).Equal(empty) {
		t.Errorf("null and [] parse to %v, want the default", empty)
	}
}
