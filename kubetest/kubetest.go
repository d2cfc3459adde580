// Package kubetest runs the real Kubernetes API machinery inside a test: the
// generic API server library (list, watch, watch cache, bookmarks, WatchList,
// 410 Expired, protobuf and JSON) upon an embedded etcd, on a loopback port.
// A [Proxy] in front of it adds the faults that a healthy server cannot show.
//
// Call [Start] with a fresh directory and t.Cleanup(srv.Stop); hand
// [Server.Config] to a client, [Server.Kubeconfig] or [Server.CAFile] to a
// program. [Server.StopAPI] and [Server.StartAPI] are a crash of the API server
// and its return; [Server.Compact] before them makes old resourceVersions
// expire. Tests and cmd/api, which the benchmarks run, call it, and nothing else may: it never listens beyond
// 127.0.0.1, lets everybody do everything, and is never part of a server.
//
// It serves namespaces, nodes, pods, services, endpoints, configmaps,
// endpointslices and serviceimports, with the defaults that readers rely on.
// It is not a cluster. There is no admission, no RBAC, no controller and no
// allocator: a Service has the clusterIP that it was created with, its
// EndpointSlices are those the test creates, a namespace need not exist to be
// written into, and a deleted pod is gone at once.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// silence turns klog off. It runs once in a process because klog's logger may
// not be replaced while somebody logs.
var silence = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// errStopped is the answer to those who use a server after Stop.
var errStopped = errors.New("the server was stopped")

// A Server is an API server and its etcd. Its methods may be called from
// several goroutines; those that start or stop something wait for each other.
type Server struct {
	dir   string
	addr  string // host:port of the API, the same for every run of it
	certs *certs
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
	if s.certs, err = newCerts(); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if err := os.WriteFile(s.CAFile(), s.certs.ca, 0o600); err != nil {
		return nil, fmt.Errorf("writing the CA: %w", err)
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

// StopAPI stops the API server as a crash would: every connection is cut where
// it stands, no answer says goodbye, and until StartAPI connections are
// refused. The data stay. It does nothing if the server does not run.
func (s *Server) StopAPI() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPI()
}

// stopAPI is StopAPI for those who hold the lock.
func (s *Server) stopAPI() {
	if s.api != nil {
		s.api.stop()
		s.api = nil
	}
}

// Stop ends the API server and etcd and returns when both are gone. The
// directory is left to the caller. A second Stop does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPI()
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// Compact drops etcd's history up to now. The watch cache of a running API
// server still holds it: only after a StopAPI and a StartAPI does a list or a
// watch at an older resourceVersion get 410 Expired.
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

// URL returns https://127.0.0.1:port. It stays the same as long as the Server.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "https://" + s.addr
}

// CAFile returns the path of a PEM file with the certificate authority of the
// serving certificate.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.crt") }

// Config returns a new client configuration for this server. Clients are not
// throttled; set its ContentType for protobuf, or leave it for JSON.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.certs.ca},
		QPS:             -1,
	}
}

// Kubeconfig writes a kubeconfig for this server into the server's directory
// and returns its path. It holds the CA itself and no credentials.
func (s *Server) Kubeconfig() (string, error) {
	path := filepath.Join(s.dir, "kubeconfig")
	cluster := &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.certs.ca}
	if err := writeKubeconfig(path, cluster); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return path, nil
}

// writeKubeconfig writes a kubeconfig with one cluster, one user without
// credentials, and the context that joins them.
func writeKubeconfig(path string, cluster *clientcmdapi.Cluster) error {
	const name = "kubetest"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = cluster
	c.AuthInfos[name] = clientcmdapi.NewAuthInfo()
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return clientcmd.WriteToFile(*c, path)
}
