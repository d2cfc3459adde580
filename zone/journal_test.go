package zone

import (
	"bytes"
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

// The serial number is the time, and increases when the clock is set back or wraps around.
func TestNextSerial(t *testing.T) {
	at := func(units int64) time.Time { return time.UnixMilli((units*1000 + 63) / 64) }
	for _, c := range []struct {
		last uint32
		now  int64
		want uint32
	}{
		{100, 200, 200},
		{200, 200, 201},
		{300, 200, 301},
		{1<<32 - 1, 1<<32 - 1, 0},
		{1<<32 - 1, 1<<32 + 5, 5},
		{5, 1<<32 - 1, 6},
	} {
		if got := NextSerial(c.last, at(c.now)); got != c.want {
			t.Errorf("NextSerial(%d, %d): got %d, want %d", c.last, c.now, got, c.want)
		}
	}
}

// A journal counts its bytes, and leaves out the oldest differences beyond its bound; the journal before
// keeps them.
func TestJournal(t *testing.T) {
	soa := append(wire.AppendRecordHeader(nil, "\x00", wire.TypeSOA, 60, 22), make([]byte, 22)...)
	record := append(wire.AppendRecordHeader(nil, "\x01a\x00", wire.TypeTXT, 60, 60000), make([]byte, 60000)...)
	var j, before Journal
	for serial := range uint32(2 * MaxJournal / 60000) {
		before = j
		j = j.Then(serial, serial+1, nil, record)
		size := 0
		for _, d := range j.deltas {
			size += d.size()
		}
		if size != j.Bytes() || size > MaxJournal {
			t.Fatalf("got %d bytes, counted as %d, want at most %d", size, j.Bytes(), MaxJournal)
		}
	}
	if _, ok := j.Since(0, soa); ok {
		t.Error("the differences since the first version are known")
	}

	last := j.deltas[len(j.deltas)-1]
	if _, ok := before.Since(last.from, soa); ok {
		t.Error("the journal before knows the differences since the version that it leads to")
	}
	changes, ok := j.Since(last.from, soa)
	if !ok {
		t.Fatal("the differences since the version before are not known")
	}
	var got []uint32
	for r := range changes {
		if len(r) == len(soa) {
			got = append(got, SOASerial(r))
		} else if !bytes.Equal(r, record) {
			t.Errorf("got a record of %d bytes, want the added one", len(r))
		}
	}
	if len(got) != 2 || got[0] != last.from || got[1] != last.to {
		t.Errorf("got the serial numbers %d, want %d and %d", got, last.from, last.to)
	}
}
