package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

func wireName(t *testing.T, text string) []byte {
	t.Helper()
	n, err := wire.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(n)
}

func pod(namespace string, labels map[string]string) *cluster.Pod {
	return &cluster.Pod{Namespace: namespace, Name: "x", Labels: cluster.NewLabels(labels)}
}

// begun returns a record of the group g.
func begun() *Record {
	r := New(nil)
	r.Begin([]string{"g"}, time.Unix(1000, 0))
	return r
}

func TestRecordFold(t *testing.T) {
	for _, c := range []struct {
		parent string
		line   int // of the name in the line that denies
		want   string
	}{
		{"example.com", 1, "*.example.com 250"},
		{"a.example.com", len("\x07example\x03com\x00"), "*.a.example.com 250"},
		{"example.com", len("\x02n1\x07example\x03com\x00"), "n0.example.com 1"}, // such a line denies one name
		{"co.uk", 1, "n0.co.uk 1"},
		{"s3.amazonaws.com", 1, "n0.s3.amazonaws.com 1"},
		{"com", 1, "n0.com 1"},
	} {
		r := begun()
		for i := range 250 {
			r.Add("g", pod("a", nil), Name, wireName(t, fmt.Sprintf("n%d.%s", i, c.parent)), c.line)
		}
		names := r.Groups()[0].Workloads[0].Names
		first := slices.Min(slices.Collect(maps.Keys(names)))
		if got := fmt.Sprint(first, " ", names[first]); got != c.want {
			t.Errorf("250 names below %s: got %s of %d names, want %s", c.parent, got, len(names), c.want)
		}
	}
}

// A namespace that fills its part of the record leaves room for others, and what had none is counted.
func TestRecordFull(t *testing.T) {
	r := begun()
	random := func(namespace string, count int) {
		for i := range count {
			r.Add("g", pod(namespace, map[string]string{"app": fmt.Sprint(i % 7)}), Name, wireName(t, fmt.Sprintf("x.n%d.test", i)), 1)
		}
	}
	random("greedy", 3*maxOfNamespace)
	r.Add("g", pod("modest", nil), Services, []byte("greedy"), 0)
	g := r.Groups()[0]
	if last := g.Workloads[len(g.Workloads)-1]; last.Namespace != "modest" || last.Services["greedy"] != 1 {
		t.Errorf("got %+v as the last workload, want that of the other namespace", last)
	}
	if want := uint64(3*maxOfNamespace - (maxOfNamespace - 7)); g.LeftOut != want {
		t.Errorf("got %d queries without room, want %d", g.LeftOut, want)
	}

	for i := range 20 {
		random(fmt.Sprint("other", i), maxOfNamespace)
	}
	if r.names > maxNames {
		t.Errorf("got %d names, want %d at most", r.names, maxNames)
	}
	r.Begin([]string{"other"}, time.Unix(2000, 0))
	if r.names != 0 || r.bytes != 0 || len(r.namespace) != 0 {
		t.Errorf("without the group: got %d names, %d bytes, namespaces %v, want none", r.names, r.bytes, r.namespace)
	}
}

func TestRecordReload(t *testing.T) {
	r := begun()
	r.Add("g", nil, Name, wireName(t, "a.test"), 1)
	r.Add("none", nil, Name, wireName(t, "a.test"), 1)
	r.Begin([]string{"g", "h"}, time.Unix(2000, 0))
	got := r.Groups()
	if len(got) != 2 || got[0].Began.Unix() != 1000 || got[0].Workloads[0].Names["a.test"] != 1 || got[1].Began.Unix() != 2000 {
		t.Errorf("got %+v, want what g had, and h from now on", got)
	}
}

// The text of two servers has what both saw, says for how long, and what it does not know.
func TestWrite(t *testing.T) {
	policy := `. {
    policy {
        audit
        rcode refused
        group agents {
            namespaces sandbox-*
            pods tier=web
            deny * *.bad.test old.test
            services own
            audit
        }
        group others {
            unknown
            deny *
        }
    }
}
`
	report := func(began int, add func(r *Record)) Report {
		r := New(nil)
		r.Begin([]string{"agents", "others"}, time.Unix(int64(began), 0))
		add(r)
		return Report{Zones: ".", Policy: policy, Time: time.Unix(10_000, 0), Groups: r.Groups()}
	}
	web := pod("sandbox-a", map[string]string{"app": "web", "tier": "web"})
	sums := Add(nil, []Report{report(1000, func(r *Record) {
		r.Add("agents", web, Name, wireName(t, "www.example.com"), 1)
		r.Add("agents", web, Name, wireName(t, "old.test"), len("\x03old\x04test\x00"))
		r.Add("agents", web, Services, []byte("shop"), 0)
		r.Add("others", nil, Name, wireName(t, "ntp.test"), 1)
	})})
	sums = Add(sums, []Report{report(5000, func(r *Record) {
		r.Add("agents", web, Name, wireName(t, "www.example.com"), 1)
		for i := range 10 {
			r.Add("agents", web, Name, wireName(t, fmt.Sprintf("n%d.many.test", i)), 1)
		}
		r.Add("agents", pod("sandbox-b", nil), Transfer, nil, 0)
	})})

	var text strings.Builder
	if err := sums[0].Write(&text, true); err != nil {
		t.Fatal(err)
	}
	want := `# The directive policy of the server block . with what its audit saw on 2 servers in 1h23m20s to 2h30m0s.
# Not in it: names that nobody queried in that time, and what servers saw before they were restarted.
# Read it before you use it: a name is here because it was queried, not because it is right.
policy {
    rcode refused
    group agents/sandbox-a/app=web {
        namespaces sandbox-a
        pods tier=web,app=web
        deny * *.bad.test
        services own shop
        allow *.many.test # 10
        allow old.test # 1
        allow www.example.com # 2
    }
    group agents/sandbox-b {
        namespaces sandbox-b
        pods tier=web,!app.kubernetes.io/name,!k8s-app,!app,!run
        deny * *.bad.test old.test
        services own
        # Not allowed: 1 zone transfers, which a line services refuses.
    }
    group agents {
        namespaces sandbox-*
        pods tier=web
        deny * *.bad.test old.test
        services own
    }
    group others {
        unknown
        deny *
        allow ntp.test # 1
    }
}
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	text.Reset()
	if err := sums[0].Write(&text, false); err != nil {
		t.Fatal(err)
	}
	if want := "# 10 names have one parent: allow *.many.test would be enough (--suffixes).\n"; !strings.Contains(text.String(), want) || !strings.Contains(text.String(), "allow n7.many.test # 1\n") {
		t.Errorf("without suffixes: got\n%s\nwant the names, and %q", text.String(), want)
	}

	text.Reset()
	sums[0].Groups[0].LeftOut, sums[0].Differ = 7, true
	if err := sums[0].Write(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the names of 7 queries, for which the record had no room", "The servers have different groups"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s\nwant %q", text.String(), want)
		}
	}
}

// A group selects a workload by itself if its selector has that of the workload as a whole part, and not if one only
// ends in the text of the other.
func TestWriteSelectorWithSameEnding(t *testing.T) {
	labels := map[string]string{"app": "web", "myapp": "web", "example.com/app": "web"}
	for _, c := range []struct{ pods, want string }{
		{"app=web", "app=web"},
		{"tier=front,app=web", "tier=front,app=web"},
		{"myapp=web", "myapp=web,app=web"},
		{"example.com/app=web", "example.com/app=web,app=web"},
		{"tier=front,myapp=web", "tier=front,myapp=web,app=web"},
	} {
		r := begun()
		r.Add("g", pod("a", labels), Name, wireName(t, "www.example.com"), 1)
		policy := ". {\n policy {\n group g {\n namespaces a\n pods " + c.pods + "\n deny *\n }\n }\n}\n"
		sums := Add(nil, []Report{{Zones: ".", Policy: policy, Groups: r.Groups()}})
		var text strings.Builder
		if err := sums[0].Write(&text, false); err != nil {
			t.Fatal(err)
		}
		_, group, _ := strings.Cut(text.String(), "namespaces a\n")
		got, _, _ := strings.Cut(strings.TrimSpace(group), "\n")
		separate := strings.Contains(text.String(), "group g/")
		if got != "pods "+c.want || separate != (c.pods != c.want) || !strings.Contains(text.String(), "allow www.example.com # 1") {
			t.Errorf("pods %s: got\n%s\nwant the workload selected by pods %s", c.pods, text.String(), c.want)
		}
	}
}

// What a server sends that is not a server of ours cannot end a line or write one.
func TestWriteHostile(t *testing.T) {
	sums := Add(nil, []Report{{Zones: ".", Policy: ". {\n policy {\n group g {\n deny *\n }\n }\n}\n", Groups: []Group{{
		Name: "g", Workloads: []Workload{{Namespace: "a", Names: Counts{"x\n}\nallow *": 1, "ok.test": 1, "a..b": 1}}}}}}})
	var text strings.Builder
	if err := sums[0].Write(&text, false); err != nil || strings.Contains(text.String(), "allow *\n") || !strings.Contains(text.String(), "allow ok.test # 1") {
		t.Errorf("names: got error %v and\n%s\nwant only the valid names, and escapes", err, text.String())
	}
	sums[0].Groups[0].Workloads[0].Namespace = "a\n}\nadmin"
	text.Reset()
	if err := sums[0].Write(&text, false); err != nil {
		t.Fatal(err)
	}
	blocks, err := corefile.Parse("written", []byte(". {\n"+text.String()+"}\n"))
	if err != nil || len(blocks[0].Directives[0].Body) != 2 {
		t.Errorf("namespace: got error %v and\n%s\nwant two groups, and the namespace as one word", err, text.String())
	}
}

func TestRecordAllocations(t *testing.T) {
	r, one, web := begun(), wireName(t, "www.example.com"), pod("a", map[string]string{"app": "web"})
	r.Add("g", web, Name, one, 1)
	if n := testing.AllocsPerRun(100, func() { r.Add("g", web, Name, one, 1) }); n != 0 {
		t.Errorf("a name that is known: got %v allocations, want 0", n)
	}
}
