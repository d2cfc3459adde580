package apiserver

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// An object differs from a list if its last change in the list has not been received, and
// none has been received since the comparison began.
func TestMissedChanges(t *testing.T) {
	key := func(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }
	const listVersion = 20
	for _, c := range []struct {
		name          string
		known, listed uint64 // versions of the object; 0 without it
		event         string // version of an event since the comparison began, and "deleted"
		want          int
	}{
		{"equal", 10, 10, "", 0},
		{"missed update", 10, 15, "", 1},
		{"missed creation", 0, 15, "", 1},
		{"missed deletion", 10, 0, "", 1},
		{"update before the list", 10, 15, "15", 0},
		{"update after the list", 10, 10, "25", 0},
		{"creation before the list", 0, 15, "15", 0},
		{"creation after the list", 0, 0, "25", 0},
		{"deletion before the list", 10, 0, "15 deleted", 0},
		{"deletion after the list", 10, 10, "25 deleted", 0},
		{"older list", 15, 10, "", 0},
		{"created since an older list", 25, 0, "", 0},
	} {
		for _, reached := range []bool{false, true} {
			v := versions{seed: maphash.MakeSeed()}
			objects := func(version uint64) map[uint64]uint64 {
				all := map[uint64]uint64{v.hash(key("other")): 5}
				if version > 0 {
					all[v.hash(key("web"))] = version
				}
				return all
			}
			v.replace(objects(c.known), "12")
			if latest, ok := v.begin(); latest != 12 || !ok {
				t.Fatalf("begin: got %d %v, want 12 true", latest, ok)
			}
			version, how, _ := strings.Cut(c.event, " ")
			if version != "" {
				v.set(key("web"), version, how == "deleted")
			}
			if reached {
				v.reached("30")
			}
			n, final, ok := v.missed(objects(c.listed), listVersion)
			if n != c.want || final != (reached || version > "20") || !ok {
				t.Errorf("%s, version 30 reached %v: got %d missed changes, final %v, ok %v, want %d", c.name, reached, n, final, ok, c.want)
			}
			v.replace(objects(c.listed), "40")
			if _, _, ok := v.missed(objects(c.listed), listVersion); ok {
				t.Errorf("%s: missed after another list: got ok true, want false", c.name)
			}
		}
	}
	var unlisted versions
	if _, ok := unlisted.begin(); ok {
		t.Error("begin before the first list: got true, want false")
	}
}

// A watch that delivers nothing is compared with the API server, and the objects are
// listed again.
func TestComparisonFindsMissedChange(t *testing.T) {
	service := func(name string, version int) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q,"resourceVersion":"%d"}}`, name, version)
	}
	for name, c := range map[string]struct{ before, names, after, want string }{
		"creation": {service("a", 3), "shop/a", service("a", 3) + "," + service("b", 8), "shop/a shop/b"},
		"deletion": {service("a", 3) + "," + service("b", 4), "shop/a shop/b", service("a", 3), "shop/a"},
		"update":   {service("a", 3), "shop/a", service("a", 8), "shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, &fakeServer{objects: map[string]string{"services": c.before}})
			f := watchWithTimeouts(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true, CompareInterval: 10 * time.Millisecond}, shortTimeouts())
			f.waitForCall(t, "listed services "+c.names)
			f.do(func() { f.sink.lines = nil })
			a.mu.Lock()
			a.objects["services"] = c.after
			a.version++ // but the watches go on
			a.mu.Unlock()
			f.waitForLog(t, `msg="Watch has missed changes, listing again" kind=Service count=1`)
			f.waitForCall(t, "listed services "+c.want)
		})
	}
}

// A comparison that fails changes nothing.
func TestComparisonFails(t *testing.T) {
	isComparison := func(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") }
	for _, code := range []int{http.StatusForbidden, http.StatusNotAcceptable, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			a := serve(t, &fakeServer{objects: map[string]string{"services": webAndEmpty}, refuse: func(r *http.Request) int {
				if isComparison(r) {
					return code
				}
				return 0
			}})
			f := watchWithTimeouts(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true, CompareInterval: time.Millisecond}, shortTimeouts())
			f.waitFor(t, "five comparisons", func() bool {
				n := 0
				for _, r := range a.received() {
					if isComparison(r) && strings.HasSuffix(r.URL.Path, "/services") {
						n++
					}
				}
				return n >= 5
			})
			f.do(func() {
				if n := strings.Count(strings.Join(f.sink.lines, "\n"), "listed services"); n != 1 || f.logged.Len() > 0 {
					t.Errorf("got %d lists and log\n%s\nwant one list and no log", n, &f.logged)
				}
			})
		})
	}
}
