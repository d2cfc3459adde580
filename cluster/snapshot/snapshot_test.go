package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// An item is an object and its kind.
type item struct {
	kind   cluster.Kind
	object cluster.Object
}

func all(items []item) iter.Seq2[cluster.Kind, cluster.Object] {
	return func(yield func(cluster.Kind, cluster.Object) bool) {
		for _, i := range items {
			if !yield(i.kind, i.object) {
				return
			}
		}
	}
}

// items returns objects of every kind with every field.
func items() []item {
	ip := netip.MustParseAddr
	ports := []cluster.Port{{Name: "http", Protocol: "tcp", Port: 80}, {Protocol: "udp", Port: 65535}}
	endpoints := cluster.AppendEndpoint(nil, cluster.Endpoint{Addr: ip("10.1.0.1"), Hostname: "web-0", Zone: "west", Ready: true, Target: true})
	endpoints = cluster.AppendEndpoint(endpoints, cluster.Endpoint{Addr: ip("fd00::1")})
	return []item{
		{cluster.Namespaces, &cluster.Namespace{Name: "shop"}},
		{cluster.Services, &cluster.Service{Namespace: "shop", Name: "web", ClusterIPs: []netip.Addr{ip("10.0.0.1"), ip("fd00::2")}, Ports: ports, Selector: true, PublishNotReady: true}},
		{cluster.Slices, &cluster.Slice{Namespace: "shop", Name: "web-1", Service: "web", Ports: ports, Endpoints: cluster.Endpoints(endpoints)}},
		{cluster.Services, &cluster.Service{Namespace: "shop", Name: "db", Headless: true, External: &cluster.External{IPs: []netip.Addr{ip("192.0.2.1")}, Hosts: []string{"lb.example", "lb2.example"}}}},
		{cluster.Slices, &cluster.Slice{Namespace: "shop", Name: "db-1", Service: "db", Endpoints: cluster.Endpoints(cluster.AppendName(nil, "db.example", cluster.Endpoint{Ready: true}))}},
		{cluster.Services, &cluster.Service{Namespace: "shop", Name: "far", ExternalName: "far.example"}},
		{cluster.Pods, &cluster.Pod{Namespace: "bank", Name: "safe", IPs: []netip.Addr{ip("10.1.0.9")}, Host: true, Labels: cluster.NewLabels(map[string]string{"app": "safe", "empty": ""})}},
		{cluster.Pods, &cluster.Pod{Namespace: "bank", Name: "door", IPs: []netip.Addr{ip("10.1.0.8")}}},
		{cluster.Imports, &cluster.Service{Namespace: "shop", Name: "web", Headless: true}},
		{cluster.ImportSlices, &cluster.Slice{Namespace: "shop", Name: "east-1", Service: "web", Cluster: "east.example", Endpoints: cluster.Endpoints(endpoints)}},
	}
}

func written(t testing.TB, items []item) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, Header{time.Unix(1234, 0), "options"}, all(items)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	s, err := Read(bytes.NewReader(written(t, items())))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Header{time.Unix(1234, 0), "options"}); s.Header != want {
		t.Errorf("header: got %v, want %v", s.Header, want)
	}
	var got []item
	if err := s.Each(func(kind cluster.Kind, o cluster.Object) { got = append(got, item{kind, o}) }); err != nil {
		t.Fatal(err)
	}
	want := items()
	if len(got) != len(want) {
		t.Fatalf("got %d objects, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("object %d: got %v %+v, want %v %+v", i, got[i].kind, got[i].object, want[i].kind, want[i].object)
		}
	}
}

// Every change of one byte, and every truncation, is detected.
func TestReadCorrupt(t *testing.T) {
	good := written(t, items())
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := Read(bytes.NewReader(bad)); err == nil {
			t.Errorf("byte %d of %d changed: got no error, want one", i, len(good))
		}
		if _, err := Read(bytes.NewReader(good[:i])); err == nil {
			t.Errorf("first %d bytes of %d: got no error, want one", i, len(good))
		}
	}
	for text, want := range map[string]string{
		"": "not a snapshot", "apiVersion: v1": "not a snapshot", magic + "99\nrest": `version "99", want "1"`,
		magic + version: "incomplete", string(good) + "\n": "incomplete",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("Read of %q: got error %v, want %s", text[:min(len(text), 30)], err, want)
		}
	}
}

// failing is a writer that fails after some bytes, as on a full disk.
type failing struct{ left int }

var errFull = errors.New("no space left on device")

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteErrors(t *testing.T) {
	size := len(written(t, items()))
	for _, room := range []int{0, size / 2, size - 1} {
		if err := Write(&failing{room}, Header{time.Unix(1234, 0), "options"}, all(items())); !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes of %d: got error %v, want %v", room, size, err, errFull)
		}
	}
	if err := Write(&failing{size}, Header{}, all([]item{{cluster.Nodes, &cluster.Node{Name: "a"}}})); err == nil {
		t.Error("a kind that is not supported: got no error, want one")
	}
}

// Write makes no copy of the objects.
func TestWriteAllocations(t *testing.T) {
	few, many := items()[:3], make([]item, 0, 3000)
	for range 1000 {
		many = append(many, few...)
	}
	count := func(items []item) float64 {
		return testing.AllocsPerRun(5, func() {
			if err := Write(&failing{1 << 30}, Header{}, all(items)); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := count(few), count(many); b > a+2*float64(len(many)) {
		t.Errorf("%d objects need %v allocations, %d need %v, want at most two more for each", len(few), a, len(many), b)
	}
}

// FuzzRead reads snapshots with a correct checksum. An accepted snapshot can be written
// and read again.
func FuzzRead(f *testing.F) {
	good := written(f, items())
	f.Add(good[len(magic+version) : len(good)-5])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := append([]byte(magic+version), body...)
		data = appendSum(data, crc32.Checksum(data, castagnoli))
		s, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var got []item
		if err := s.Each(func(kind cluster.Kind, o cluster.Object) { got = append(got, item{kind, o}) }); err != nil {
			return
		}
		for _, i := range got {
			if slice, ok := i.object.(*cluster.Slice); ok {
				for range slice.Endpoints.All() {
				}
				for range slice.Endpoints.Names() {
				}
			}
		}
		again, err := Read(bytes.NewReader(written(t, got)))
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		err = again.Each(func(kind cluster.Kind, o cluster.Object) {
			if want := got[i]; !reflect.DeepEqual(item{kind, o}, want) {
				t.Errorf("object %d: got %v %+v, want %v %+v", i, kind, o, want.kind, want.object)
			}
			i++
		})
		if err != nil || i != len(got) {
			t.Errorf("got %d objects and error %v, want %d", i, err, len(got))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	var many []item
	for i := range 10_000 {
		name := fmt.Sprintf("service-%d", i)
		var endpoints []byte
		for n := range 15 {
			endpoints = cluster.AppendEndpoint(endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n)}), Ready: true})
		}
		ports := []cluster.Port{{Name: "http", Protocol: "tcp", Port: 80}}
		many = append(many, item{cluster.Services, &cluster.Service{Namespace: "shop", Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}, Ports: ports}},
			item{cluster.Slices, &cluster.Slice{Namespace: "shop", Name: name + "-abcde", Service: name, Ports: ports, Endpoints: cluster.Endpoints(endpoints)}})
	}
	size := len(written(b, many))
	b.ReportMetric(float64(size), "bytes")
	for b.Loop() {
		if err := Write(&failing{size}, Header{}, all(many)); err != nil {
			b.Fatal(err)
		}
	}
}
