package index

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/snapshot"
)

// reloadIndex returns a new index with the objects of ix, by way of a snapshot.
func reloadIndex(t testing.TB, ix *Index, kinds []cluster.Kind) *Index {
	t.Helper()
	var buf bytes.Buffer
	if err := snapshot.Write(&buf, snapshot.Header{Written: time.Now()}, ix.Objects()); err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	again := New(ix.settings, kinds, discardLog())
	if err := again.Load(s); err != nil {
		t.Fatal(err)
	}
	return again
}

// An index that was loaded from a snapshot equals the one that was written, for
// any objects. A list of the same objects keeps its entries.
func TestSnapshotEqualsIndex(t *testing.T) {
	for seed := range uint64(50) {
		c := newObjectChurn(seed)
		ix := New(c.set, churnKinds(), discardLog())
		for range 30 {
			c.step(ix)
		}
		for _, kind := range churnKinds() {
			ix.Listed(kind, func(key cluster.Key) bool { return c.have[kind][key] != nil })
		}
		again := reloadIndex(t, ix, churnKinds())
		compare := func(what string) {
			t.Helper()
			for i, want := range indexState(ix) {
				if got := indexState(again)[i]; !slices.Equal(got, want) {
					t.Fatalf("seed %d, %s: got\n%v\nwant\n%v", seed, what, got, want)
				}
			}
		}
		compare("loaded")
		if !again.Ready() || again.Synced() {
			t.Errorf("seed %d, loaded: got ready %v and synced %v, want ready only", seed, again.Ready(), again.Synced())
		}
		c.step(ix) // which the snapshot lacks
		for _, kind := range churnKinds() {
			var all []cluster.Object
			for _, o := range c.have[kind] {
				all = append(all, o)
			}
			for _, ix := range []*Index{ix, again} {
				ix.Put(kind, all...)
				ix.Listed(kind, func(key cluster.Key) bool { return c.have[kind][key] != nil })
			}
		}
		compare("listed")
		if !again.Synced() {
			t.Errorf("seed %d: after all lists: got Synced() = false, want true", seed)
		}
	}
}

func TestSnapshotPods(t *testing.T) {
	kinds := []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Pods}
	ix := New(Settings{PodsByAddr: true}, kinds, discardLog())
	ix.Put(cluster.Namespaces, namespaceObject("shop"))
	ix.Put(cluster.Pods, &cluster.Pod{Namespace: "shop", Name: "web-0", IPs: []netip.Addr{netip.MustParseAddr("10.1.0.1")}, Labels: cluster.NewLabels(map[string]string{"app": "web"})})
	again := reloadIndex(t, ix, kinds)
	if got, want := again.serial.Load(), ix.serial.Load(); got != want {
		t.Errorf("serial: got %d, want %d", got, want)
	}
	if p := again.PodAt(netip.MustParseAddr("10.1.0.1")); p == nil || p.Name != "web-0" {
		t.Errorf("Pod at 10.1.0.1: got %v, want web-0", p)
	} else if v, _ := p.Labels.Get("app"); v != "web" {
		t.Errorf("label app: got %q, want web", v)
	}
}

// FuzzLoad loads snapshots of any objects into an index.
func FuzzLoad(f *testing.F) {
	c := newObjectChurn(1)
	ix := New(c.set, churnKinds(), discardLog())
	for range 30 {
		c.step(ix)
	}
	var buf bytes.Buffer
	if err := snapshot.Write(&buf, snapshot.Header{}, ix.Objects()); err != nil {
		f.Fatal(err)
	}
	const first, last = len("seamark snapshot 1\n"), 5
	head := buf.Bytes()[:first]
	f.Add(buf.Bytes()[first : buf.Len()-last])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := slices.Concat(head, body)
		data = binary.LittleEndian.AppendUint32(append(data, 15<<3|5), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
		s, err := snapshot.Read(bytes.NewReader(data))
		if err == nil {
			_ = New(Settings{}, churnKinds(), discardLog()).Load(s)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	w := largeCluster()
	ix := w.newIndex()
	var buf bytes.Buffer
	if err := snapshot.Write(&buf, snapshot.Header{}, ix.Objects()); err != nil {
		b.Fatal(err)
	}
	size := buf.Len()
	for b.Loop() {
		s, err := snapshot.Read(bytes.NewReader(buf.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		if err := New(Settings{TTL: 5}, watchedKinds(), discardLog()).Load(s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}

// A query that arrives while a snapshot is written is received before the write ends, also
// with a single processor.
func TestObjectsQueryMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ix := clusterSize{plain: 3 * groupServices}.newIndex()
	reader, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	client, err := net.Dial("udp", reader.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func() {
		if _, err := client.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	var received atomic.Int32
	first := make(chan bool)
	go func() {
		for {
			if _, _, err := reader.ReadFrom(make([]byte, 1)); err != nil {
				return
			}
			if received.Add(1) == 1 {
				first <- true
			}
		}
	}()
	const attempts = 10 // the kernel may deliver a packet late
	for range attempts {
		received.Store(0)
		send()
		<-first // the reader waits for the network again, since it is not preempted before
		objects := 0
		for range ix.Objects() {
			if objects++; objects == 1 {
				send()
			}
		}
		if received.Load() == 2 {
			return
		}
		for received.Load() < 2 {
			runtime.Gosched()
		}
	}
	t.Errorf("in each of %d attempts: a packet that arrived after the first object was received after the last, want before", attempts)
}

func BenchmarkSnapshot(b *testing.B) {
	ix := largeCluster().newIndex()
	var buf bytes.Buffer
	for b.Loop() {
		buf.Reset()
		if err := snapshot.Write(&buf, snapshot.Header{}, ix.Objects()); err != nil {
			b.Fatal(err)
		}
	}
}
