package chaintest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Setup sets up the first server block of a Corefile with some directives, in their order, and
// returns it with all errors. Other directives in it have no effect. The caller may add handlers
// before it calls Planned.
func Setup(text string, log *slog.Logger, directives ...config.Directive) (*config.Block, error) {
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	b := &config.Block{Source: servers[0], Log: log, Metrics: new(metrics.Registry), Chain: new(dns.Chain)}
	var errs []error
	for _, k := range b.Source.Keys {
		keys, err := config.ParseKey(k, 53)
		errs = append(errs, err)
		for _, key := range keys {
			b.Zones = append(b.Zones, key.Zone)
		}
	}

	for _, d := range directives {
		var uses []corefile.Directive
		for _, use := range b.Source.Directives {
			if use.Text == d.Name {
				uses = append(uses, use)
			}
		}
		if len(uses) > 0 {
			b.SetDirective(d.Name)
			errs = append(errs, d.Setup(b, uses))
		}
	}
	return b, corefile.Sorted(errs...)
}

// A Block is a running server block.
type Block struct {
	*Server
	Plan  *config.Block
	Start *config.Start

	next *Block // that has taken its place
}

// Run starts a server block that has been planned, for queries of all names. It takes the place of old unless that is
// nil, and stops when the test ends.
func Run(t testing.TB, b *config.Block, old *Block) *Block {
	t.Helper()
	r := &Block{Plan: b}
	var before *config.Start
	if old != nil {
		before, old.next = old.Start, r
	}
	r.Start = config.NewStart(context.Background(), before)
	t.Cleanup(func() {
		if r.next == nil {
			r.Start.Stop()
		}
	})
	if err := b.Started(r.Start); err != nil {
		t.Fatal(err)
	}

	r.Server = NewServer(t, map[string]*dns.Chain{".": b.Chain.CopyFor("dns://:53", ".")})
	b.Swapped()
	r.Start.Commit()
	return r
}
