package secondary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A reloader runs plans, one after the other, whose server blocks copy example.org.
type reloader struct {
	t         *testing.T
	primaries map[string]*scriptedPrimary // by address
	memory    *memory.Budget
	log       *chaintest.Log
	plan      *config.Start
}

// newReloader returns a reloader with primaries that are away, but for the first one. At the end all memory must
// be released.
func newReloader(t *testing.T) *reloader {
	r := &reloader{t, map[string]*scriptedPrimary{}, memory.New(1<<30, memory.FromGroup), new(chaintest.Log), nil}
	for i := range 3 {
		r.primaries[fmt.Sprintf("192.0.2.%d:53", i+1)] = &scriptedPrimary{t: t}
	}
	r.primary(1).set(0, firstReplies)
	return r
}

func (r *reloader) primary(i int) *scriptedPrimary {
	return r.primaries[fmt.Sprintf("192.0.2.%d:53", i)]
}

// copies replaces the plan by one with a server block for each text of options, and returns their copies.
func (r *reloader) copies(blocks ...string) (copies []*zoneCopy) {
	r.t.Helper()
	next := config.NewStart(r.t.Context(), r.plan)
	var all []*config.Block
	for _, text := range blocks {
		b, err := chaintest.Setup("example.org {\nsecondary {\n"+text+"\n}\n}", r.log.Logger(), config.Directive{Name: "secondary", Setup: Setup})
		if err != nil {
			r.t.Fatal(err)
		}
		b.Memory = r.memory
		b.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return r.primaries[address].dial(ctx, network, address)
		}
		if err := b.Started(next); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, b)
	}
	synctest.Wait() // a primary that is there has sent the zone before the swap
	for _, b := range all {
		b.Swapped()
		copies = append(copies, config.Find[*Secondary](b)[0].zones.Get(origin).copy)
	}
	next.Commit()
	r.plan = next
	return copies
}

func (r *reloader) stop() {
	r.plan.Stop()
	if used := r.memory.Part(memory.Zones).Used + r.memory.Part(memory.Transfers).Used; used != 0 {
		r.t.Errorf("at the end: %d bytes are reserved, want none", used)
	}
}

// A reload with other primaries, or another file, serves the zone until it is transferred, whatever its serial
// number is then, and until it expires. The version of before is not in the file after it.
func TestReloadBorrowsZone(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string
		primary       int
	}{
		"other primaries":                {"transfer from 192.0.2.1", "transfer from 192.0.2.2", 2},
		"other primaries, the same file": {"transfer from 192.0.2.1\nfile $DIR/one", "transfer from 192.0.2.2\nfile $DIR/one", 2},
		"other primaries and file":       {"transfer from 192.0.2.1\nfile $DIR/two", "transfer from 192.0.2.2\nfile $DIR/one", 2},
		"another file":                   {"transfer from 192.0.2.1\nfile $DIR/two", "transfer from 192.0.2.1\nfile $DIR/one", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, dir := newReloader(t), t.TempDir()
				defer r.stop()
				r.copies(strings.ReplaceAll(tt.before, "$DIR", dir))
				time.Sleep(time.Second)
				used := r.memory.Part(memory.Zones).Used
				r.primary(1).set(0, nil)

				c := r.copies(strings.ReplaceAll(tt.after, "$DIR", dir))[0]
				follows(t, "at the reload", c, r.log, 5)
				c = r.copies(strings.ReplaceAll(tt.after, "$DIR", dir)+"\nfallthrough", "transfer from 192.0.2.3")[0]
				follows(t, "at another one", c, r.log, 5)
				time.Sleep(9 * time.Minute)
				follows(t, "without a primary", c, r.log, 5)
				if got := r.memory.Part(memory.Zones).Used; got != used {
					t.Errorf("%d bytes are reserved, want those of one version, %d", got, used)
				}
				time.Sleep(time.Minute + time.Second)
				follows(t, "after EXPIRE", c, r.log, 0)

				r.primary(tt.primary).set(0, map[uint16][]string{axfr: {"@ 5 SOA 3\na 5 A 192.0.2.1\n@ 5 SOA 3"}})
				time.Sleep(lastRetry + time.Second)
				follows(t, "with a primary", c, r.log, 3)
				if got, want := r.memory.Part(memory.Zones).Used, c.room.version; got != want {
					t.Errorf("%d bytes are reserved at the end, want those of the new version, %d", got, want)
				}
				if c.file != "" {
					fileHas(t, c, 3)
				}
			})
		})
	}
}

// A plan that stops releases the memory of a zone that it has borrowed.
func TestBorrowedZoneReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloader(t)
		r.copies("transfer from 192.0.2.1")
		time.Sleep(time.Second)
		c := r.copies("transfer from 192.0.2.2")[0]
		follows(t, "at the reload", c, r.log, 5)
		r.stop()
	})
}

// A new primary that has sent the zone before the copy of the old one stops has its zone in the file.
func TestFileOfNewPrimaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloader(t)
		defer r.stop()
		file := "\nfile " + filepath.Join(t.TempDir(), "zone")
		r.copies("transfer from 192.0.2.1" + file)
		time.Sleep(time.Second)
		r.primary(1).set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		time.Sleep(time.Minute + time.Second) // REFRESH: the old copy writes its file when it stops

		r.primary(2).set(0, map[uint16][]string{axfr: {"@ 5 SOA 3\n@ 5 SOA 3"}})
		c := r.copies("transfer from 192.0.2.2" + file)[0]
		time.Sleep(time.Second)
		follows(t, "after the reload", c, r.log, 3)
		fileHas(t, c, 3)
	})
}

// fileHas checks that the file of a copy has a version.
func fileHas(t *testing.T, c *zoneCopy, want uint32) {
	t.Helper()
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	z, _, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := z.Serial(); got != want {
		t.Errorf("got serial number %d in the file, want %d", got, want)
	}
}

// The zones of several copies may have been different ones, for different clients: a reload serves neither in the
// place of the other.
func TestReloadBorrowsNoOtherZone(t *testing.T) {
	const one, two, three = "transfer from 192.0.2.1", "transfer from 192.0.2.2", "transfer from 192.0.2.3"
	for name, tt := range map[string]struct{ before, after []string }{
		"two copies are replaced":         {[]string{one, two}, []string{three}},
		"two copies are replaced by two":  {[]string{one, two}, []string{three, three + " 192.0.2.2"}},
		"a copy without a zone is kept":   {[]string{one, two}, []string{two}},
		"a copy without a zone, and more": {[]string{one, two}, []string{two, two}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReloader(t)
				defer r.stop()
				r.copies(tt.before...)
				time.Sleep(time.Second)
				for _, c := range r.copies(tt.after...) {
					follows(t, "at the reload", c, r.log, 0)
				}
			})
		})
	}
}

// Members of a catalog whose primaries change are served from what they have until these have sent them whole,
// through several changes, and until they expire. Their files stay.
func TestMembersOfOtherPrimaries(t *testing.T) {
	for name, files := range map[string][3]string{
		"the same file": {"catalog", "catalog", "catalog"},
		"other files":   {"one", "two", "three"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, log, budget := t.TempDir(), new(chaintest.Log), memory.New(1<<30, memory.FromGroup)
				m, err := newServer(chaintest.QuietLog(), budget).claim(config.NewStart(t.Context(), nil), nil, &config.Block{Log: log.Logger()})
				if err != nil {
					t.Fatal(err)
				}
				p := &scriptedPrimary{t: t}
				p.set(0, map[uint16][]string{axfr: {"@ 5 SOA 5\nx 5 A 192.0.2.1\n@ 5 SOA 5"}})
				configure := func(from, file string, dial func(context.Context, string, string) (net.Conn, error)) *catalog {
					c := &catalog{options: options{origin: "\x04list\x00", from: from, file: filepath.Join(dir, file)}, clients: []*client{{dial: dial}}}
					m.wanted.Store(&scope{zones: []wire.Name{"\x00"}, all: []*catalog{c}})
					m.configure()
					return c
				}
				member := func() *zoneCopy { return m.current.Load().members[origin].copy }
				hasFile := func(when, file string) {
					t.Helper()
					if _, err := os.Stat(filepath.Join(dir, file+".example.org")); err != nil {
						t.Errorf("%s: %v, want the member's file\n%s", when, err, log)
					}
				}

				first := configure("one", files[0], p.dial)
				list, err := receiveAll(nil, message(t, axfr, "@ 5 SOA 1\nversion TXT 2\na.zones PTR example.org.\n@ 5 SOA 1"))
				if err == nil {
					err = m.update(first, list)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				follows(t, "with a primary", member(), log, 5)
				used := budget.Part(memory.Catalogs).Used

				away := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }
				for i, from := range []string{"two", "three"} {
					configure(from, files[1+i], away)
					follows(t, from+": at once", member(), log, 5)
					time.Sleep(saveInterval)
					follows(t, from+": without a primary", member(), log, 5)
					hasFile(from, files[1+i])
					if got := budget.Part(memory.Catalogs).Used; got != used || m.server.budget.used == 0 {
						t.Errorf("%s: %d bytes are reserved, want those of one version, %d", from, got, used)
					}
				}
				time.Sleep(10 * time.Minute)
				follows(t, "after EXPIRE", member(), log, 0)

				p.set(0, map[uint16][]string{axfr: {"@ 5 SOA 3\n@ 5 SOA 3"}})
				configure("four", files[2], p.dial)
				time.Sleep(lastRetry + time.Second)
				follows(t, "with the last primary", member(), log, 3)
				if queries := p.asked(); strings.Trim(queries, "AXFR ") != "" {
					t.Errorf("got queries for %s, want AXFR alone", queries)
				}
				hasFile("at the end", files[2])

				m.Stop()
				if used := budget.Part(memory.Catalogs).Used; used != 0 || m.server.budget.used != 0 {
					t.Errorf("at the end: %d bytes are reserved, and %d of records, want none", used, m.server.budget.used)
				}
			})
		})
	}
}

// A copy has a version for others only if it serves and has its history: one that takes over a member has the two
// one after the other.
func TestVersionWithoutHistory(t *testing.T) {
	z, err := receiveAll(nil, message(t, axfr, "@ 5 SOA 5\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, serves := range []bool{false, true} {
		for _, has := range []bool{false, true} {
			c := newCopy(options{origin: origin}, nil, chaintest.QuietLog(), newRoom(nil, memory.Zones), nil)
			if serves {
				c.current.Store(z)
			}
			if has {
				c.history.Store(&version{Zone: z})
			}
			if got := c.version(); (got != nil) != (serves && has) {
				t.Errorf("serves: %v, with a history: %v: got version %v", serves, has, got)
			}
		}
	}
}
