package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupQUIC sets up the quic directive, which limits the streams of DNS over QUIC. Its
// reference page is docs/reference/directives/quic.md.
func SetupQUIC(b *config.Block, uses []corefile.Directive) error {
	l := &connectionLimits{config.QUIC, config.StreamLimits{Streams: 256, Workers: 1024}}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 1, math.MaxInt32)},
		corefile.Option{Usage: "worker_pool_size N", Once: true, Set: corefile.Int(&l.limits.Workers, 1, math.MaxInt32)},
	))
}
