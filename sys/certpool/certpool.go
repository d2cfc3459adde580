// Package certpool reads the certificates of authorities, for the TLS configuration of servers
// and of clients.
package certpool

import (
	"crypto/x509"
	"fmt"

	"github.com/seamark/seamark/sys/watch"
)

// Read returns the certificates in a file in PEM format.
func Read(file string) (*x509.CertPool, error) {
	text, err := watch.ReadKey(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Parse returns the certificates in the text of a file. It is an error if there are none.
func Parse(file string, text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM format", file)
	}
	return pool, nil
}
