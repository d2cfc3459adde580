package debian

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"
)

func TestUsers(t *testing.T) {
	got, err := Users(fstest.MapFS{
		"a/a_test.go": {Data: []byte(`package a
var servers = []struct{ program string }{{"knotd"}, {"nsd"}}
func TestDirect(t *testing.T) { debian.Program(t, "kdig") }
func TestThroughHelper(t *testing.T) { run(t, "curl", "tcpdump-is-no-program") }
func TestTable(t *testing.T) {
	for _, s := range servers { start(t, s.program) }
}
func TestNone(t *testing.T) { use("haproxy"); chromium.Stop() }
func TestPage(t *testing.T) { chromium.Start(t) }
func start(t *testing.T, name string) { run(t, name) }
func run(t *testing.T, name string, args ...string) { debian.Program(t, name); run(t, name) }
func use(string) {}
`)},
		"a/a.go":          {Data: []byte("package a\nfunc TestNothing() { debian.Program(nil, \"delv\") }\n")},
		"a/testdata/b.go": {Data: []byte("not Go")},
	})
	want := map[string][]string{
		"kdig": {"a.TestDirect"}, "curl": {"a.TestThroughHelper"}, "knotd": {"a.TestTable"}, "nsd": {"a.TestTable"},
		"chromium": {"a.TestPage"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// Every program of the table is needed by a test, so that nothing is installed in vain.
func TestProgramsNeeded(t *testing.T) {
	users, err := Users(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if len(users[name]) == 0 {
			t.Errorf("no test needs %s", name)
		}
		t.Logf("%s: %d tests", name, len(users[name]))
	}
}
