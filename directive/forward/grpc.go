package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/wire/grpcmessage"
)

// SetupGRPC sets up the grpc directive, which sends queries to other servers over gRPC.
//
//	grpc FROM TO... {
//	    except ZONES...
//	    tls [CERT KEY] [CA]
//	    tls_servername NAME
//	    policy random|round_robin|sequential
//	    fallthrough [ZONES...]
//	}
//
// Use it for upstreams with CoreDNS's gRPC service, as server blocks with a key of the
// scheme grpc:// have it. FROM is the zone whose names are forwarded, or a CIDR for its
// reverse zones. Each TO is one or more upstreams; up to 15 in all:
//
//   - an address: IP, IP:PORT or [IPv6]:PORT; the default port is 53;
//   - unix:///PATH for a Unix domain socket;
//   - a file such as /etc/resolv.conf, or a host name, as in forward.
//
// The options:
//
//   - except: zones within FROM whose names are not forwarded.
//   - tls: use TLS, with the client certificate and key, and the CA to verify upstreams
//     with instead of the system's. Without tls and tls_servername there is no encryption.
//   - tls_servername: use TLS, with this name in the upstreams' certificates.
//   - policy: the upstream to query first: a random one (the default), each in turn, or the
//     first in the file.
//   - fallthrough: pass a query to the next directive if the answer is NXDOMAIN or no
//     upstream has answered; with ZONES only for names in these zones. The directive forward
//     is before grpc: except FROM from it.
//
// Everything else is as in forward, with its default values: another upstream is queried
// when one is slow or fails, upstreams that fail are checked, equal queries are sent once,
// and replies are validated.
//
// Metrics, by to, the upstream: coredns_grpc_requests_total{to},
// coredns_grpc_responses_total{to,rcode}, coredns_grpc_request_duration_seconds{to}, and
// the metrics of forward that begin with seamark_forward.
//
//	.:1053 {
//	    grpc example.org 10.0.0.10:443 10.0.0.11:443 {
//	        tls_servername dns.example.org
//	    }
//	    forward . /etc/resolv.conf {
//	        except example.org
//	    }
//	}
//
// Same as CoreDNS: syntax and defaults, and NXDOMAIN for a gRPC status NOT_FOUND. Different: a
// TO may be a host name; health checks; clients get SERVFAIL instead of FORMERR for an
// invalid reply.
func SetupGRPC(b *config.Block, uses []corefile.Directive) error {
	return errors.Join(config.Once(uses), setupWith(b, uses, (*Forward).parseGRPC))
}

// parseGRPC reads a grpc directive.
func (f *Forward) parseGRPC(b *config.Block, d corefile.Directive) error {
	f.options.plainText = true
	return f.parseWith(b, d, parseGRPCDestination, f.fallthru.Option())
}

// parseGRPCDestination parses a TO argument of grpc.
func parseGRPCDestination(text string, exists func(path string) bool) (d destination, err error) {
	switch path, ok := strings.CutPrefix(text, "unix://"); {
	case ok && path != "":
		return destination{scheme: schemeGRPC, url: text}, nil
	case strings.Contains(text, "://"):
		return d, fmt.Errorf("want an address without a scheme, or unix:///PATH, got %q", text)
	}
	d, err = parseDestination(text, exists)
	d.scheme = schemeGRPC
	return d, err
}

// grpcURL returns the URL of the gRPC service.
func (u *upstream) grpcURL() string {
	at := url.URL{Scheme: "https", Host: "localhost", Path: grpcmessage.Path}
	if u.options().plainText {
		at.Scheme = "http"
	}
	if u.url == "" {
		// A zone may be in the address of a connection, not in a Host field.
		at.Host = netip.AddrPortFrom(u.addr.Addr().WithZone(""), u.addr.Port()).String()
	}
	return at.String()
}

// exchangeGRPC sends a query over gRPC and returns the reply.
func (u *upstream) exchangeGRPC(ctx context.Context, packet []byte) (answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.grpcURL(), bytes.NewReader(grpcmessage.Append(nil, packet)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", grpcmessage.ContentType)
	request.Header.Set("TE", "trailers")
	response, err := u.httpClient().Do(request)
	if err != nil {
		return nil, u.httpError(err)
	}
	defer func() { _ = response.Body.Close() }()
	if contentType := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(contentType, grpcmessage.ContentType) {
		return nil, fmt.Errorf("%s: got status %s and content type %q, want a gRPC message", u, response.Status, contentType)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, grpcmessage.MaxSize+1))
	if err != nil {
		return nil, u.httpError(err)
	}
	if len(body) > grpcmessage.MaxSize {
		return nil, fmt.Errorf("%s: reply is too large", u)
	}
	status := response.Trailer
	if status.Get("Grpc-Status") == "" {
		status = response.Header // there is no message
	}
	const ok, notFound = "0", "5"
	switch code := status.Get("Grpc-Status"); code {
	case ok:
		if answer, err = grpcmessage.Parse(body); err != nil {
			err = fmt.Errorf("%s: %w", u, err)
		}
		return answer, err
	case notFound:
		return nxdomain(packet), nil
	default:
		return nil, fmt.Errorf("%s: got gRPC status %q: %q", u, code, status.Get("Grpc-Message"))
	}
}

// nxdomain returns the reply NXDOMAIN to a query. It has neither records nor EDNS.
func nxdomain(query []byte) []byte {
	end := wire.HeaderLen
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	reply := bytes.Clone(query[:end+5])
	reply[2] |= 1 << 7 // QR
	reply[3] = byte(wire.NXDomain)
	binary.BigEndian.PutUint16(reply[4:], 1)
	clear(reply[6:wire.HeaderLen])
	return reply
}
