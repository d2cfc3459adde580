package cluster

import (
	"encoding/json"
	"reflect"
	"testing"
)

// samePlain wants a text that is converted line by line to mean what the YAML
// parser reads in it, and says whether it was.
func samePlain(t *testing.T, text string) bool {
	t.Helper()
	raw, known, ok := plainToJSON([]byte(text))
	if !ok {
		return false
	}
	want, err := parsedToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v, but it was converted to %s", text, err, raw)
	}
	var a, b any
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%q: %s: %v", text, raw, err)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		t.Fatal(err)
	}
	if object, ok := b.(map[string]any); ok {
		leaveUnread(object["endpoints"])
	}
	var h head
	if known != nil && (json.Unmarshal(want, &h) != nil || !reflect.DeepEqual(h, *known)) {
		t.Fatalf("%q:\ngot head %+v\nwant %+v", text, known, h)
	}
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%q:\ngot %s\nwant %s", text, raw, want)
	}
	return true
}

// leaveUnread takes out what endpoints have and nobody reads.
func leaveUnread(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"nodeName", "serving", "terminating", "namespace", "uid"} {
			delete(v, key)
		}
		for _, value := range v {
			leaveUnread(value)
		}
	case []any:
		for _, value := range v {
			leaveUnread(value)
		}
	}
}

// plainTexts are converted line by line.
func plainTexts() []string {
	return []string{
		service("a", "10.0.0.1"), slice("a", "b", "- {addresses: [10.0.0.1], nodeName: n, conditions: {serving: true, ready: true}}\n- nodeName: n\n  addresses:\n  - 10.0.0.2\n  uid: x"),
		"apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  labels:\n    name: b\n  namespace: c\n", "kind: a\nmetadata: {name: b}\n", "kind: a\nmetadata:\n  name: b\n  Name: c\n", "kind: a\nKind: b\n", "kind: 1\nmetadata:\n  name:\n",
		"kind: a\nmetadata:\n- name: b\n", "kind: List\nitems: []\n", "# c\n\na: b # c\n",
		"a: 1\nb: 0\nc: 010\nd: 0x1f\ne: 1.5\nf: 1e3\ng: yes\nh: No\ni: null\nj: true\nk: 2001:db8::1\nl: 2026-11-21\nm: 10.0.0.1\nnn: 10.0.0\no: 123456789012345678901\np: 10.0.0.0/8\nq: 1_000\n",
		"a:\nb:\n  c:\n    d: e\n  f: g\nh: i\n", "a:\n- b\n- c: d\n  e: f\n-\n- - g\n  - h\n-\n  i: j\nk: l\n", "a:\n  - b\n  -   c: d\n      e: f\n",
		"a: [b, 1, \"c d\", 'e', [f], {g: h}, []]\nb: {}\nc: {d: e, f: {g: [1]}}\n", "a: \"x: y # z\"\nb: 'it is \"q\" \\n'\nc: a b  c # d\nd: x#y\n",
		"a: |\n  b\n   c: d\n\n  # e\nf: |-\n  {\"a\":\"b\"}\n\ng: h\n", "- a\n- b: c\n", "apiVersion: v1\nitems:\n- a: b\nkind: List\n", "a: fd00::1\nb: http://x/y\n", "a: {b: x y, c: 10.0.0.1}", "a: b",
	}
}

func TestManifestsPlain(t *testing.T) {
	for _, text := range plainTexts() {
		if !samePlain(t, text) {
			t.Errorf("not converted: %q", text)
		}
	}
	for _, text := range []string{
		"", "a", "a: b: c", "a: b\n c", "a:\n  b\n c", "a: b\na: c\n", "a: &x b\nc: *x\n", "a: !!str 1\n", "{a: b}\n", "a: >\n  b\n", "a: |2\n  b\n", "y: 1\n", "1: a\n",
		"\"a\": b\n", "? a\n: b\n", "a:\tb\n", "a: \"\\n\"\n", "a: 'b''c'\n", "a: [b,\nc]\n", "a: [b: c]\n", "a: {b:c}\n", "a: {{ x }}\n", "a: {b: c?d}\n", "a: [b ?]\n", "a: - b\n", "<<: {a: b}\n", "a: [b, ]\n", "a: ü\n", "a: b\n- c\n", "- a\nb: c\n", "a: |\n\n  b\n", "a: @b\n",
		"a: \"b\" c\n", "a: \"b\": c\n", "a: [b] c\n", "a:\n    b: c\n  d: e\n", "--- a: b\n", "%YAML 1.1\n---\na: b\n", "a: -1\n", "a: ~\n", "a: .5\n",
	} {
		if samePlain(t, text) {
			t.Logf("converted too: %q", text)
		}
	}
}

func FuzzManifestPlain(f *testing.F) {
	for _, text := range plainTexts() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { samePlain(t, text) })
}
