package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// connectionLimits are the limits of the connections of a scheme.
type connectionLimits struct {
	scheme config.Scheme
	limits config.StreamLimits
}

// StreamLimits returns the scheme and its limits.
func (l *connectionLimits) StreamLimits() (config.Scheme, config.StreamLimits) {
	return l.scheme, l.limits
}

// SetupHTTPS sets up the https directive, which limits the connections of DNS over HTTPS. Its
// reference page is docs/reference/directives/https.md.
func SetupHTTPS(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.HTTPS, config.StreamLimits{Connections: 200, Streams: 250})
}

// setupLimits sets up a directive that limits connections and streams.
func setupLimits(b *config.Block, uses []corefile.Directive, scheme config.Scheme, standard config.StreamLimits) error {
	l := &connectionLimits{scheme, standard}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_connections N", Once: true, Set: corefile.Int(&l.limits.Connections, 0, math.MaxInt32)},
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 0, math.MaxInt32)},
	))
}
