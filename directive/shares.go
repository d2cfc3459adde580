package directive

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// shares are the weights of a file: which address is how often the first.
type shares struct {
	file string
	now  atomic.Pointer[weights]

	text  []byte // the last that was read
	log   *slog.Logger
	stop  chan struct{}
	ended chan struct{}
}

// weights are by name and address.
type weights map[wire.Name]map[netip.Addr]uint32

type sharesKey struct {
	file   string
	period time.Duration
}

// startShares reads a file and looks at it again and again.
func startShares(s *config.Start, b *config.Block, file string, period time.Duration) (*shares, error) {
	return config.Keep(s, sharesKey{file, period}, func() (*shares, error) {
		w := &shares{file: file, log: b.Log, stop: make(chan struct{}), ended: make(chan struct{})}
		if err := w.read(); err != nil {
			return nil, err
		}
		go w.follow(period)
		return w, nil
	})
}

// Stop ends the looking.
func (w *shares) Stop() {
	close(w.stop)
	<-w.ended
}

func (w *shares) follow(period time.Duration) {
	defer close(w.ended)
	if period == 0 {
		return
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		err := w.read()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			w.log.Warn("loadbalance: the weights stay as they were", "err", err)
		}
	}
}

// read takes the file's weights, unless it is as it was.
func (w *shares) read() error {
	text, err := corefile.Text(w.file)
	if err != nil {
		return fmt.Errorf("reading weights: %w", err)
	}
	if w.now.Load() != nil && bytes.Equal(text, w.text) {
		return nil
	}
	weights, err := parseShares(text)
	if err != nil {
		return fmt.Errorf("%s:%w", w.file, err)
	}
	w.text = text
	w.now.Store(&weights)
	return nil
}

// parseShares reads the text of a file. Its errors begin with the line.
func parseShares(text []byte) (weights, error) {
	all := weights{}
	var name wire.Name
	in := bufio.NewScanner(bytes.NewReader(text))
	line := 0
	for in.Scan() {
		line++
		before, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(before)
		switch len(words) {
		case 0:
		case 1:
			var err error
			if name, err = wire.ParseName(words[0]); err != nil {
				return nil, fmt.Errorf("%d: not a name: %w", line, err)
			}
			if all[name] == nil {
				all[name] = map[netip.Addr]uint32{}
			}
		case 2:
			addr, err := netip.ParseAddr(words[0])
			if err != nil {
				return nil, fmt.Errorf("%d: want an IP address, got %q", line, words[0])
			}
			n, err := strconv.Atoi(words[1])
			if err != nil || n < 1 || n > 255 {
				return nil, fmt.Errorf("%d: want a weight of 1..255, got %q", line, words[1])
			}
			if name == "" {
				return nil, fmt.Errorf("%d: want a name before the first address", line)
			}
			all[name][addr.Unmap()] = uint32(n)
		default:
			return nil, fmt.Errorf("%d: want a name, or an address and its weight, got %q", line, in.Text())
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%d: %w", line+1, err)
	}
	if name == "" {
		return nil, fmt.Errorf("%d: want at least one name", line+1)
	}
	return all, nil
}

// order puts one of the addresses of each run in front.
func (w *shares) order(a *wire.Answer) {
	all := *w.now.Load()
	a.RRsets(func(run wire.RRset) {
		if t := run.First.Type; t != wire.TypeA && t != wire.TypeAAAA {
			return
		}
		var room [wire.MaxName]byte
		owner, _, ok := wire.ReadName(room[:0], a.Buf, run.First.Owner)
		if !ok {
			return
		}
		of := all[wire.Name(wire.AppendLower(owner[:0], owner))]
		// With each record the sum of weights grows, and the record takes the
		// front from those before with the probability of its part in it.
		chosen, sum := 0, uint32(0)
		a.EachRecord(run, func(i int, r wire.Record) {
			weight := uint32(1)
			if addr, ok := netip.AddrFromSlice(a.Buf[r.RData:r.Next]); ok {
				weight = max(weight, of[addr])
			}
			if sum += weight; rand.Uint32N(sum) < weight {
				chosen = i
			}
		})
		a.MoveToFront(run, func(i int, _ wire.Record) bool { return i == chosen })
	})
}
