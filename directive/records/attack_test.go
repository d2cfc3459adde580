package records

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/test/race"
)

// An object with an error has no more records than one without: not even if it was small before.
func TestObjectsLimitsWithErrors(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list()
	for i := range 50 {
		r.put(configMap(fmt.Sprint("a/", i), 1, "hosts", "wrong"))
	}
	for i := range 50 {
		text := fmt.Sprintf("$GENERATE 1-90 h$-%d.a.example.test. A 10.0.0.1\nwrong.example.test. A 10.0.0.1\n", i)
		r.put(configMap(fmt.Sprint("a/", i), 1, "zone", text))
	}
	if r.Total() > 100 {
		t.Errorf("the namespace has %d records, and may have 100", r.Total())
	}
	r.expect(t, "h90-0.a.example.test A", "10.0.0.1", "h1-1.a.example.test A", "REFUSED")
}

// Objects without records are limited, too, and room that becomes free is used: by the next object in age,
// which is read again.
func TestObjectsLimitsWithoutRecords(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list()
	for i := range 300 {
		r.put(configMap(fmt.Sprint("a/", i), int64(i+1), "hosts", fmt.Sprintf("10.0.0.1 h%d.a.example.test", i)))
	}
	if r.Counts().Objects != 100 {
		t.Errorf("the namespace has %d objects, and may have 100", r.Counts().Objects)
	}
	const crowded = "namespace a has more than 200 objects, and the youngest are ignored (max_records)"
	if errs := fmt.Sprint(r.Errors()); strings.Count(errs, noRoom) != 100 || !strings.Contains(errs, crowded) {
		t.Errorf("got errors %s, want 100 objects without room, and %s", errs, crowded)
	}

	r.expect(t, "h99.a.example.test A", "10.0.0.1", "h100.a.example.test A", "REFUSED")
	r.Delete(cluster.ConfigMaps, cluster.Key{Namespace: "a", Name: "50"})
	r.settle()
	r.expect(t, "h50.a.example.test A", "REFUSED", "h100.a.example.test A", "10.0.0.1", "h101.a.example.test A", "REFUSED")
	r.put(configMap("a/300", 1, "hosts", "10.0.0.1 x.a.example.test")) // one of the oldest
	r.expect(t, "x.a.example.test A", "10.0.0.1", "h100.a.example.test A", "REFUSED")
}

// A record of many bytes counts as several, those of $GENERATE and repeated ones included.
func TestObjectsLimitsLargeRecords(t *testing.T) {
	r := newRig(t, twoTenants)
	long := strings.Repeat(strings.Repeat("x", 200)+" ", 200)
	r.list()
	for kind, object := range map[string]cluster.Object{
		"one":       configMap("a/one", 1, "zone", "x.a.example.test. TXT "+long),
		"repeated":  configMap("a/one", 1, "zone", strings.Repeat("x.a.example.test. TXT "+long[:2010]+"\n", 20)),
		"generated": configMap("a/one", 1, "zone", "$GENERATE 1-90 h$.a.example.test. TXT "+long[:804]),
		"nothing":   configMap("a/one", 1, "zone", strings.Repeat("$GENERATE 0-65535 \\a\n", 50000)),
		"errors":    endpoint("a/one", 1, rrs("x.a.example.test", "A", strings.Split(strings.Repeat("x ", 200), " ")...)),
	} {
		read := readObject(object, r.rules, 60, 100)
		if read.Used <= 100 || read.Count > 100 || len(read.Packed) > 101*2*objects.SizeUnit {
			t.Errorf("%s: read %d records of %d bytes, want an error since they are more than 100 of %d",
				kind, read.Count, len(read.Packed), objects.SizeUnit)
		}
	}
	r.put(configMap("a/one", 1, "zone", "x.a.example.test. TXT "+long[:2010]))
	if r.Total() != 8 || len(r.Errors()) != 0 {
		t.Errorf("got %d records for one of 2,000 bytes, want 8; faults %v", r.Total(), r.Errors())
	}
}

// Errors do not keep the text of their objects in memory.
func TestObjectsLongErrors(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list()
	long := strings.Repeat("\u00e9\x1b", 20_000)
	for _, object := range []cluster.Object{
		configMap("a/one", 1, "zone", long), configMap("a/one", 1, "hosts", long), configMap("a/one", 1, strings.Repeat("k", 5000), ""),
		endpoint("a/two", 1, rrs(long, "A", "10.0.0.1")), endpoint("a/two", 1, rrs("a.example.test", long, "10.0.0.1")),
		endpoint("a/two", 1, rrs("a.example.test", "A", long)), endpoint("a/two", 1, rrs("a.example.test", "CAA", long)),
	} {
		r.put(object)
		for _, err := range r.Errors() {
			if n := len(err.Error()); n > 700 {
				t.Errorf("an error has %d bytes, want at most 700: %v", n, err)
			}
			if strings.ContainsFunc(err.Error(), func(c rune) bool { return c < ' ' || c == '\uFFFD' }) {
				t.Errorf("control characters in %q", err)
			}
		}
	}
	if len(r.Errors()) != 2 {
		t.Errorf("got faults %v, want two", r.Errors())
	}
}

// A namespace whose objects change all the time does not keep the server from being ready.
func TestObjectsReadyDespiteChanges(t *testing.T) {
	r := newRig(t, twoTenants)
	change := func() { r.Put(cluster.ConfigMaps, configMap("a/noisy", 1, "hosts", "10.0.0.1 x.a.example.test")) }
	change()
	r.Put(cluster.ConfigMaps, configMap("b/names", 1, "hosts", "10.0.0.2 x.b.a.example.test"))
	for _, kind := range []cluster.Kind{cluster.ConfigMaps, cluster.DNSEndpoints} {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	for steps := 0; !r.handler.Ready(); steps++ {
		if steps == 10 {
			t.Fatal("not ready after 10 changes, of which 2 are of the lists")
		}
		change()
		r.Step()
	}
	r.expect(t, "x.b.a.example.test A", "10.0.0.2")
}

// Of thousands of objects with one name few are told when another one gets it: the work does not grow
// with the square of their number.
func TestObjectsManyRivals(t *testing.T) {
	race.Skip(t)
	r := newRig(t, strings.Replace(twoTenants, "max_records 100", "max_records 20000", 1))
	r.list()
	const rivals = 1000
	for i := range rivals {
		r.put(configMap(fmt.Sprint("a/", i), int64(i+1), "hosts", fmt.Sprintf("10.0.%d.%d x.a.example.test", i/256, i%256)))
	}
	r.told.take()

	for i := range rivals - 1 {
		r.expect(t, "x.a.example.test A", fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		r.put(configMap(fmt.Sprint("a/", i), int64(i+1)))
	}
	if n := len(r.told.take()); n == 0 || n > 25*rivals {
		t.Errorf("%d Events for %d changes, want at most 25 each", n, rivals)
	}
	r.expect(t, "x.a.example.test A", "10.0.3.231")
	if got := r.board.Conditions(); len(got) != 0 {
		t.Errorf("the last object has the name, and there are conditions: %v", got)
	}
}

// A check tells of an object that has no room: the younger of two of which each is all that a namespace
// may have.
func TestObjectsIgnored(t *testing.T) {
	var text strings.Builder
	for i, data := range []string{"zone: $GENERATE 1-100 h$.a.example.test. A 10.0.0.1", "zone: $GENERATE 1-100 i$.a.example.test. A 10.0.0.1"} {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x%d, namespace: a, labels: {seamark.io/dns: records}}\n"+
			"data:\n  %s\n", i, data)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := plan(strings.Replace(twoTenants, "max_records 100", "max_records 100\nmanifests "+folder, 1))
	if err != nil {
		t.Fatal(err)
	}
	errs := fmt.Sprint(h.CheckObjects(t.Context(), cluster.Options{}))
	if want := "ConfigMap a/x1: older objects have the room of the namespace, which may have 100 records (max_records)"; !strings.Contains(errs, want) {
		t.Errorf("got errors %s, want %s", errs, want)
	}
}
