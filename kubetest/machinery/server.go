// Package machinery runs the real Kubernetes API machinery: the generic API server
// library (list, watch, watch cache, bookmarks, WatchList, 410 Expired, protobuf
// and JSON) on an embedded etcd, on loopback ports; and etcd clusters of three
// members. cmd/api runs it in a process of its own, so that tests with the race
// detector need not build it with the race detector. Tests use it through package
// kubetest.
//
// It serves namespaces, nodes, pods, services, endpoints, configmaps,
// endpointslices, serviceimports, and the other kinds that the manifests of deploy/ have, with
// the defaults that readers rely on; custom resources of any CustomResourceDefinition; and reviews of
// tokens and of permissions. RBAC decides what
// the users of package control may do. It is not a cluster: there is no admission, no controller
// and no allocator. A Service has the clusterIP that it was created with, its
// EndpointSlices are those the test creates, a namespace need not exist before
// objects in it, and a deleted pod is removed at once. It never listens beyond
// 127.0.0.1, allows clients without a token everything, and is never part of the DNS server.
package machinery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/seamark/seamark/kubetest/certs"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/klog/v2"
)

// silence turns klog off. It runs once in a process because klog's logger must
// not be replaced during a call of it.
var silence = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// errStopped is the error of calls after Stop.
var errStopped = errors.New("the server was stopped")

// A Server is an API server and its etcd. Its methods may be called from
// several goroutines; methods that start or stop a server wait for each other.
type Server struct {
	dir   string
	addr  string // host:port of the API, the same for every run of it
	certs *certs.Authority
	kinds []kind
	types *types

	mu   sync.Mutex
	etcd *embed.Etcd // nil after Stop
	api  *apiRun     // nil while the API is stopped
}

// Start runs etcd and the API server with their data in dir, which must exist
// and be empty, and returns when the server is ready: every watch cache is
// filled. The context bounds the start alone; the server runs until Stop. The
// first Start in a process silences klog, client-go's log included, for good.
func Start(ctx context.Context, dir string) (*Server, error) {
	silence()
	s := &Server{dir: dir, kinds: kinds()}
	var err error
	if s.certs, err = certs.New(); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if s.types, err = newTypes(s.kinds); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	if s.etcd, err = startEtcd(ctx, filepath.Join(dir, "etcd")); err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	s.addr = "127.0.0.1:0"
	if err := s.StartAPI(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// StartAPI starts the API server after StopAPI, on the same port and the same
// data, and returns when it is ready. It does nothing if the server runs. The
// context bounds the start alone.
func (s *Server) StartAPI(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd == nil {
		return fmt.Errorf("starting the API server: %w", errStopped)
	}
	if s.api != nil {
		return nil
	}
	ln, err := listen(ctx, s.addr)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	s.addr = ln.Addr().String()
	s.api, err = s.startRun(ctx, ln, clientURL(s.etcd))
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	return nil
}

// StopAPI stops the API server as a crash would: every connection is cut, no
// response is completed, and connections are refused until StartAPI. The data
// stay. It does nothing if the server does not run.
func (s *Server) StopAPI() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPI()
}

// stopAPI is StopAPI with the lock held.
func (s *Server) stopAPI() {
	if s.api != nil {
		s.api.stop()
		s.api = nil
	}
}

// Stop ends the API server and etcd and returns when both have ended. The caller
// removes the directory. A second Stop does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPI()
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// Compact drops etcd's history before the current revision. The watch cache of a
// running API server still holds it: only after StopAPI and StartAPI does a list
// or a watch at an older resourceVersion get 410 Expired.
func (s *Server) Compact(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd == nil {
		return fmt.Errorf("compacting etcd: %w", errStopped)
	}
	if err := compact(ctx, s.etcd); err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// URL returns https://127.0.0.1:port, the same for the life of the Server.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "https://" + s.addr
}

// Certificates returns the certificate authority, the serving certificate and its
// key, in PEM.
func (s *Server) Certificates() (ca, cert, key []byte) { return s.certs.CA, s.certs.Cert, s.certs.Key }
