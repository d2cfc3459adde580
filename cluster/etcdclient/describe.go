package etcdclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Describe returns an error of the client without gRPC's prefixes, and with
// advice where the cause is clear.
func Describe(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", requestTimeout)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return errors.New("authentication required: set a user and a password")
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return errors.New("authentication failed: check the user and the password")
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return errors.New("permission denied: the user may not read the keys")
	case errors.Is(err, rpctypes.ErrNoLeader):
		return errors.New("the cluster has no leader")
	}
	return errors.New(inner(err.Error()))
}

// reason matches the innermost description in an error of gRPC, which is the
// cause.
var reason = regexp.MustCompile(`(?s)^.* desc = "?(?:transport: )?(.*?)"?$`)

func inner(text string) string {
	if m := reason.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// Diagnose is like Describe. If the error is a timeout it connects once more to find
// the cause, which the client only logs. It takes two seconds at most.
func (o Options) Diagnose(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return Describe(err)
	}
	if wrong := o.handshake(ctx); wrong != nil {
		return errors.New(inner(wrong.Error()))
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	o.Username, o.Password = "", "" // not needed to learn why a connection fails
	c, wrong := o.Client(ctx)
	if wrong != nil {
		return Describe(wrong)
	}
	defer c.Close()
	_, wrong = pb.NewKVClient(c.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte{0}})
	if wrong != nil && strings.Contains(wrong.Error(), "connection error:") {
		return errors.New(inner(wrong.Error()))
	}
	return Describe(err)
}

// handshake returns the reason for which the client or an endpoint rejects the other's
// certificate, nil if there is none. With TLS 1.3 the endpoint's reason arrives after the
// handshake, and a client that writes first may only see the connection closed.
func (o Options) handshake(ctx context.Context) error {
	secure, err := o.tls()
	if err != nil || secure == nil {
		return err
	}
	secure.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	deadline, _ := ctx.Deadline()

	for _, endpoint := range o.endpoints() {
		_, address, hasScheme := strings.Cut(endpoint, "://")
		if !hasScheme {
			address = endpoint
		}

		conn, err := (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", strings.TrimSuffix(address, "/"))
		if err == nil {
			// The endpoint sends its HTTP/2 settings first, or an alert.
			conn.SetReadDeadline(deadline)
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}

		var alert *net.OpError // "remote error"
		var unverified *tls.CertificateVerificationError
		if errors.As(err, &unverified) || errors.As(err, &alert) && alert.Op == "remote error" {
			return err
		}
	}
	return nil
}
