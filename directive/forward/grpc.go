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

// SetupGRPC sets up the grpc directive, which sends queries to other servers over gRPC. Its
// reference page is docs/reference/directives/grpc.md.
func SetupGRPC(b *config.Block, uses []corefile.Directive) error {
	return errors.Join(config.Once(uses), setupWith(b, uses, (*Forward).parseGRPC))
}

// parseGRPC reads a grpc directive.
func (f *Forward) parseGRPC(b *config.Block, d corefile.Directive) error {
	f.options.plainText = true
	defaults := corefile.Directive{Token: d.Token}.Options(f.ownOptions(b)...)
	return errors.Join(defaults, f.parseWith(b, d, parseGRPCDestination, f.fallthru.Option()))
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
	message := bytes.NewReader(grpcmessage.Append(nil, packet))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.grpcURL(), message)
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
	contentType := response.Header.Get("Content-Type")
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(contentType, grpcmessage.ContentType) {
		return nil, fmt.Errorf("%s: got status %d %s and content type %q, want a gRPC message",
			u, response.StatusCode, http.StatusText(response.StatusCode), contentType)
	}

	body, err := u.readAll(io.LimitReader(response.Body, grpcmessage.MaxSize+1), grpcmessage.MaxSize+1)
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
