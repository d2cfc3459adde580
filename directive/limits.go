package directive

import (
	"errors"
	"math"
	"strconv"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// connectionLimits are the limits of the connections of a scheme: the directives https,
// https3, grpc_server and quic.
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
	return setupLimits(b, uses, config.HTTPS)
}

// SetupHTTPS3 sets up the https3 directive, which limits the connections of DNS over HTTP/3. Its
// reference page is docs/reference/directives/https3.md.
func SetupHTTPS3(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.HTTPS3)
}

// SetupGRPCServer sets up the grpc_server directive, which limits the connections of DNS over
// gRPC. Its reference page is docs/reference/directives/grpc_server.md.
func SetupGRPCServer(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.GRPC)
}

// SetupQUIC sets up the quic directive, which limits the connections of DNS over QUIC. Its
// reference page is docs/reference/directives/quic.md.
func SetupQUIC(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.QUIC)
}

// setupLimits sets up a directive that limits the connections of a scheme. It has an option
// for each limit that the scheme has.
func setupLimits(b *config.Block, uses []corefile.Directive, scheme config.Scheme) error {
	l := &connectionLimits{scheme: scheme}
	b.Offer(l)

	// CoreDNS accepts 0 for all limits except two of quic.
	standard, least := scheme.StandardLimits(), 0
	if scheme == config.QUIC {
		least = 1
	}

	var options []corefile.Option
	for _, row := range []struct {
		usage           string
		standard, least int
		value           *int
	}{
		{"max_connections N", standard.Connections, 0, &l.limits.Connections},
		{"max_streams N", standard.Streams, least, &l.limits.Streams},
		{"worker_pool_size N", standard.Workers, least, &l.limits.Workers},
	} {
		if row.standard > 0 {
			options = append(options, corefile.Option{
				Usage: row.usage, Once: true, Default: strconv.Itoa(row.standard),
				Set: corefile.Int(row.value, row.least, math.MaxInt32),
			})
		}
	}
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(options...))
}
