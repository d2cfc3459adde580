package etcd

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/seamark/seamark/sys/memory"
)

// Queries that need the same keys at the same time share a reading, and its memory is free once the last of
// them has left. A query after its end begins another one.
func TestReadingSharedUntilEnd(t *testing.T) {
	budget := memory.New(64<<20, memory.FromMachine)
	var rs readings
	first, created := rs.join("test\x00", budget)
	if !created {
		t.Error("first query: got a reading that exists, want a new one")
	}
	if again, created := rs.join("test\x00", budget); created || again != first {
		t.Error("second query: got another reading, want the first one")
	}
	if other, created := rs.join("test\x00www\x00", budget); !created || other == first {
		t.Error("query for other keys: got the first reading, want another one")
	}

	if err := first.claim.Grow(1 << 20); err != nil {
		t.Fatal(err)
	}
	rs.end("test\x00", first)
	if later, created := rs.join("test\x00", budget); !created || later == first {
		t.Error("query after the end: got the first reading, want another one")
	}
	for users := 3; users > 0; users-- { // the two queries, and the one that filled it
		if first.claim.Bytes() == 0 {
			t.Errorf("memory of a reading that %d use: got none, want some", users)
		}
		rs.leave(first)
	}
	if n := first.claim.Bytes(); n != 0 {
		t.Errorf("memory after the last query has left: got %d bytes, want 0", n)
	}
}

// A name with too many keys, with large ones, or with more than the memory has room for, is refused.
func TestReadingRefusedByKeysBytesAndMemory(t *testing.T) {
	for _, c := range []struct {
		name        string
		total       int64 // memory
		keys, bytes int
		want        bool
	}{
		{"fits", 64 << 20, 1000, 100, false},
		{"too many keys", 4 << 30, readMaxKeys + 1, 1, true},
		{"too large", 4 << 30, 100, readMaxBytes / 99, true},
		{"more than the memory", 64 << 20, 100, 500 << 10, true},
	} {
		s := &source{prefix: "/skydns/", index: newIndex("/skydns/", slog.New(slog.DiscardHandler))}
		r := subtree{source: s, index: s.index.newQueryIndex(), claim: memory.New(c.total, memory.FromMachine).Claim(memory.Transfers)}
		value := []byte(`{"text":"` + strings.Repeat("t", c.bytes) + `"}`)
		var kvs []*mvccpb.KeyValue
		for i := range c.keys {
			kvs = append(kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/skydns/test/k%d", i), Value: value})
		}

		err := r.add(kvs)
		if refused := err != nil; refused != c.want || r.refused != c.want {
			t.Errorf("%s: got error %v, refused %t, want refused %t", c.name, err, r.refused, c.want)
		}
		if n := r.index.count(); !c.want && n != c.keys {
			t.Errorf("%s: got %d keys, want %d", c.name, n, c.keys)
		}
	}
}
