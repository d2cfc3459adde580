package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// The items of a JSON list are read whatever the order of its fields, and messages
// name the line of the item.
func TestManifestsJSONList(t *testing.T) {
	const typed = `{"metadata":{"name":"a","namespace":"shop"},"spec":{"clusterIP":"10.0.0.1"}}`
	const own = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"b","namespace":"shop"},"spec":{"clusterIP":"10.0.0.2"}}`
	const bad = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c","namespace":"shop"},` + "\n" + `"spec":{"clusterIP":"none"}}`
	for _, c := range []struct {
		text string
		want []string
		warn string
	}{
		{"{\"kind\":\"ServiceList\",\"apiVersion\":\"v1\",\"items\":[\n" + typed + "]}", []string{"services shop/a 10.0.0.1"}, ""},
		{"{\"apiVersion\":\"v1\",\"items\":[\n" + typed + "],\n\"kind\":\"ServiceList\"}", []string{"services shop/a 10.0.0.1"}, ""},
		{"{\"apiVersion\":\"v1\",\"items\":[\n" + own + "],\n\"kind\":\"List\",\"metadata\":{}}\n" + typed[:1] + own[1:], []string{"services shop/b 10.0.0.2"}, "x.json line=4 kind=Service namespace=shop name=b first="},
		{"{\"items\":[" + own + ",\n" + bad + "],\"kind\":\"List\",\"apiVersion\":\"v1\"}", []string{"services shop/b 10.0.0.2", "services shop/c"}, "x.json line=2 "},
		{"{\"items\":[" + own + ",\n\n{\"kind\":7}],\"kind\":\"List\",\"apiVersion\":\"v1\"}", []string{"services shop/b 10.0.0.2"}, `x.json line=3 error="kind: got number`},
		{"{\"items\":null,\"kind\":\"List\",\"apiVersion\":\"v1\"}\n" + own, []string{"services shop/b 10.0.0.2"}, ""},
		{"{\"items\":[" + own + "]}", []string{"services shop/b 10.0.0.2"}, `x.json line=1 error="not a Kubernetes object`},
		{own + "\n{\"items\":[" + own[:20], []string{"services shop/b 10.0.0.2"}, `x.json line=2 error="unexpected EOF`},
		{own + "\n\n[1]", []string{"services shop/b 10.0.0.2"}, `x.json line=3 error="got [, want a JSON object`},
	} {
		b := newBench(t, map[string]string{"x.json": c.text})
		b.read()
		b.has(c.want...)
		if n := len(b.log.with("level=WARN")); n > 1 || (n == 0) != (c.warn == "") || n == 1 && len(b.log.with(c.warn)) != 1 {
			t.Errorf("%s: log %q, want a warning with %q", c.text, b.log.with(), c.warn)
		}
	}
}

// JSON may be larger than the limit of YAML, which is held in memory.
func TestManifestsJSONLarge(t *testing.T) {
	var items []string
	for i := range 20 {
		items = append(items, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%02d","namespace":"shop","annotations":{"note":%q}},"spec":{"clusterIP":"10.0.0.%d"}}`,
			i, strings.Repeat("x", 1<<16), i+1))
	}
	list := `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",\n") + "]}"
	b := newBench(t, map[string]string{"all.json": list, "all.yaml": list})
	f := b.open()
	f.limit = 1 << 20
	f.check(t.Context())
	if n := len(b.sink.objects[cluster.Services]); n != 20 {
		t.Errorf("%d services from a JSON list of %d bytes, want 20", n, len(list))
	}
	b.says(1, "level=WARN", "all.yaml", "larger than 1 MB; use the output of kubectl get -o json")
	b.says(1, "level=WARN")
}
