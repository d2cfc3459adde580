package secondary

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
)

// The file of a zone that does not change has a time of confirmation that is a small part of EXPIRE old, and the last
// one at the end. It is not written for each confirmation.
func TestFileOfConfirmedZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopyIn(t, 0, nil, func(c *zoneCopy) { c.file = filepath.Join(t.TempDir(), "zone") })
		age := func() time.Duration {
			t.Helper()
			data, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}
			z, checked, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if serial, _ := z.Serial(); serial != 5 {
				t.Errorf("got serial number %d in the file, want 5", serial)
			}
			return time.Since(checked).Truncate(time.Second)
		}

		// REFRESH is 60 seconds, and EXPIRE 600.
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		var times []time.Time
		for range 60 {
			time.Sleep(time.Minute)
			old := age()
			if limit := 600*time.Second/stampPart + time.Minute + saveInterval; old > limit {
				t.Errorf("the file was confirmed %v ago, want at most %v\n%s", old, limit, log)
			}
			if at := time.Now().Add(-old); len(times) == 0 || at.Sub(times[len(times)-1]) > 2*time.Second {
				times = append(times, at)
			}
		}
		if n := len(times); n < 20 || n > 35 {
			t.Errorf("got %d times of confirmation in an hour, want about one of two", n)
		}

		p.set(0, nil)
		time.Sleep(2 * time.Minute)
		c.mu.Lock()
		last := time.Since(c.checked).Truncate(time.Second)
		c.mu.Unlock()
		c.Stop()
		if old := age(); old-last > time.Second {
			t.Errorf("at the end the file was confirmed %v ago, want %v", old, last)
		}
	})
}

// The newest version is served, in whatever order the primaries are. If only one with an older version answers, the
// present one is served, and that is reported.
func TestOlderPrimaryHidesNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		serials []uint32 // 0 is none
		want    uint32
		reports bool
	}{
		"older first":       {[]uint32{4, 6}, 6, false},
		"older last":        {[]uint32{6, 4}, 6, false},
		"older ones first":  {[]uint32{4, 3, 6}, 6, false},
		"older, none, same": {[]uint32{4, 0, 5}, 5, false},
		"older, none":       {[]uint32{4, 0}, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var primaries []*followedPrimary
				for range tt.serials {
					p := new(followedPrimary)
					p.reply = func(*mdns.Msg, int) string {
						if p.serial.Load() == 0 {
							return "close"
						}
						return ""
					}
					primaries = append(primaries, p)
				}
				c, log := startFollowing(t, 0, 0, primaries...)
				time.Sleep(time.Second)
				for i, serial := range tt.serials {
					primaries[i].serial.Store(serial)
				}
				c.notify()
				time.Sleep(2 * time.Second)
				follows(t, "after a message", c, log, tt.want)
				if got := c.failing.Load(); got != tt.reports {
					t.Errorf("got an error reported: %v, want %v\n%s", got, tt.reports, log)
				}
			})
		})
	}
}
