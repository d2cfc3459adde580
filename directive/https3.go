package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupHTTPS3 sets up the https3 directive, which limits the streams of DNS over HTTP/3. Its
// reference page is docs/reference/directives/https3.md.
func SetupHTTPS3(b *config.Block, uses []corefile.Directive) error {
	l := &connectionLimits{config.HTTPS3, config.StreamLimits{Streams: 256}}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 0, math.MaxInt32)},
	))
}
