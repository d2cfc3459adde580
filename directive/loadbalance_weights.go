package directive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
)

// A weightsFile is the file of "loadbalance weighted", checked for changes.
type weightsFile struct {
	file    string
	current atomic.Pointer[weights]

	text []byte // the text of current
	log  *slog.Logger
	follow.Task
}

// weights maps owner names and addresses to weights.
type weights map[wire.Name]map[netip.Addr]uint32

type weightsKey struct {
	file   string
	period time.Duration
	plan   *config.Start
}

// keepWeights reads a file and checks it for changes every period. The result survives reloads, unless the
// period is zero.
func keepWeights(s *config.Start, b *config.Block, file string, period time.Duration) (*weightsFile, error) {
	key := weightsKey{file: file, period: period}
	if period == 0 {
		key.plan = s
	}
	return config.Keep(s, key, func() (*weightsFile, error) {
		w := &weightsFile{file: file, log: b.Log}
		w.current.Store(new(weights))
		for _, old := range config.Old[*weightsFile](s) {
			if old.file == file { // the last good weights, if the file is away now
				w.current.Store(old.current.Load())
			}
		}
		if err := w.read(); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may appear
			return nil, err
		}
		w.Go(func(ctx context.Context) { w.follow(ctx, period) })
		return w, nil
	})
}

func (w *weightsFile) follow(ctx context.Context, period time.Duration) {
	if period == 0 {
		return
	}
	logged := ""
	for range clock.Ticks(ctx, period) {
		err := w.read()
		switch {
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			w.log.Warn("loadbalance: Reading weights failed, keeping the previous ones", "file", w.file, "error", err)
		}
	}
}

// read updates the weights if the file's text has changed.
func (w *weightsFile) read() error {
	text, err := corefile.Text(w.file)
	if err != nil {
		return fmt.Errorf("reading weights: %w", err)
	}
	if w.text != nil && bytes.Equal(text, w.text) {
		return nil
	}
	weights, err := parseWeights(text)
	if err != nil {
		return fmt.Errorf("%s:%w", w.file, err)
	}
	w.text = text
	w.current.Store(&weights)
	return nil
}

// parseWeights reads the text of a file. Its errors begin with the line number.
func parseWeights(text []byte) (weights, error) {
	parsed := weights{}
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
				return nil, fmt.Errorf("%d: want a name: %w", line, err)
			}
			if parsed[name] == nil {
				parsed[name] = map[netip.Addr]uint32{}
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
			parsed[name][addr.Unmap()] = uint32(n)

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
	return parsed, nil
}

// order puts one address of each RRset first, chosen by weight.
func (w *weightsFile) order(a *wire.Answer) {
	current := *w.current.Load()
	a.RRsets(func(run wire.RRset) {
		if t := run.First.Type; t != wire.TypeA && t != wire.TypeAAAA {
			return
		}
		var room [wire.MaxName]byte
		owner, _, ok := wire.ReadName(room[:0], a.Buf, run.First.Owner)
		if !ok {
			return
		}
		byAddr := current[wire.Name(wire.AppendLower(owner[:0], owner))]

		// Weighted reservoir sampling: each record replaces the chosen one with
		// the probability weight/sum, where sum includes its own weight.
		chosen, sum := 0, uint32(0)
		a.EachRecord(run, func(i int, r wire.Record) {
			weight := uint32(1)
			if addr, ok := netip.AddrFromSlice(a.Buf[r.RData:r.Next]); ok {
				weight = max(weight, byAddr[addr])
			}
			if sum += weight; rand.Uint32N(sum) < weight {
				chosen = i
			}
		})
		a.MoveToFront(run, func(i int, _ wire.Record) bool { return i == chosen })
	})
}
