package admin

import (
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
)

// A connection is one to the API server of a cluster, for token_review and pods.
type connection struct {
	cluster cluster.Options

	mu      sync.Mutex
	session *apiserver.Session // nil until the first request
}

// open returns the session. A kubeconfig may appear after the start.
func (c *connection) open() (*apiserver.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.session == nil {
		c.session, err = apiserver.NewSession(c.cluster)
	}
	return c.session, err
}

// close closes the connections that no request uses.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil {
		c.session.Close()
	}
}
