// Package etcdclient creates clients of an etcd cluster, and follows small sets
// of keys. The packages etcd, skydns and kube2sky call it. It has no knowledge of any
// keys.
package etcdclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/certpool"
	"github.com/seamark/seamark/sys/redact"
	"github.com/seamark/seamark/sys/watch"
)

// Options are the endpoints and credentials of a cluster. Equal Options mean the
// same cluster and user.
type Options struct {
	Endpoints          string // URLs or HOST:PORT, separated by commas
	Username, Password string
	Cert, Key, CA      string // files, optional. Without Cert the client is not authenticated by TLS
}

// DefaultEndpoint is the endpoint if Options has none.
const DefaultEndpoint = "http://localhost:2379"

const (
	// requestTimeout is the time limit of one request and of a keepalive
	// response.
	requestTimeout = 5 * time.Second
	// keepAliveTime is how long a connection may be idle before a keepalive. It
	// is the minimum that gRPC allows.
	keepAliveTime = 10 * time.Second
)

// Check returns all errors in the Options. It opens nothing.
func (o Options) Check() error {
	var errs []error
	open, secure := 0, 0 // numbers of endpoints
	for _, e := range o.endpoints() {
		if err := checkEndpoint(e); err != nil {
			errs = append(errs, err)
		}
		if strings.HasPrefix(e, "http://") {
			open++
		}
		if strings.HasPrefix(e, "https://") {
			secure++
		}
	}

	// The client uses the scheme of the first endpoint for all.
	switch {
	case open > 0 && secure > 0:
		errs = append(errs, errors.New("endpoint: want https:// for all or for none"))
	case open > 0 && o.Cert+o.Key+o.CA != "":
		errs = append(errs, errors.New("endpoint: tls needs https:// endpoints, got http://"))
	}

	if (o.Cert == "") != (o.Key == "") {
		errs = append(errs, errors.New("tls: a certificate needs its key, and a key its certificate"))
	}
	switch {
	case o.Username == "" && o.Password != "":
		errs = append(errs, errors.New("credentials: a password needs a user"))
	case o.Username != "" && o.Password == "":
		errs = append(errs, errors.New("credentials: a user needs a password"))
	}
	return errors.Join(errs...)
}

func (o Options) endpoints() []string {
	if o.Endpoints == "" {
		return []string{DefaultEndpoint}
	}
	return strings.Split(o.Endpoints, ",")
}

func checkEndpoint(e string) error {
	wrong := fmt.Errorf("endpoint: want a URL such as https://10.0.0.1:2379, or HOST:PORT, got %q", redact.URL(e))
	text := e
	if !strings.Contains(e, "://") {
		text = "http://" + e
	}
	u, err := corefile.ParseURL(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || text != e && u.Path != "" {
		return wrong
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return wrong
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" ||
		strings.ContainsAny(e, " {}\"\\") {
		return wrong
	}
	return nil
}

// Client returns a client. An unreachable cluster is an error only if the client
// has to authenticate; the caller then tries again. Files are read now, and the
// certificate again for each connection, so that it may be renewed.
func (o Options) Client(ctx context.Context) (*clientv3.Client, error) {
	secure, err := o.tls()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: o.endpoints(), Username: o.Username, Password: o.Password, TLS: secure,
		Context:     ctx,
		DialTimeout: requestTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: requestTimeout,
		Logger: zap.NewNop(), // the caller logs the errors
	})
}

// CheckFiles reads the certificate, the key and the CA, and returns what keeps a client from using them.
func (o Options) CheckFiles() error {
	_, err := o.tls()
	return err
}

func (o Options) tls() (*tls.Config, error) {
	if o.Cert == "" && o.CA == "" && !strings.Contains(o.Endpoints, "https://") {
		return nil, nil
	}

	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pool, err := certpool.Read(o.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the CA of etcd: %w", err)
		}
		c.RootCAs = pool
	}

	if o.Cert != "" {
		// The certificate is read for each connection, since it may have been renewed.
		load := func() (*tls.Certificate, error) {
			pair, err := watch.KeyPair(o.Cert, o.Key)
			if err != nil {
				return nil, fmt.Errorf("reading the certificate for etcd: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}
