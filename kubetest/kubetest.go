// Package kubetest provides tests with a real Kubernetes API server and a real etcd
// cluster, on loopback ports, in a process of their own (cmd/api, which runs
// package machinery). A [Proxy] in front of the API server adds the faults that a
// healthy server does not have.
//
// Call [Start] with a fresh directory and t.Cleanup(srv.Stop); pass
// [Server.Config] to a client, [Server.Kubeconfig] or [Server.CAFile] to a
// program. [Server.StopAPI] and [Server.StartAPI] are a crash of the API server
// and its restart; after [Server.Compact] and a restart, old resourceVersions are
// expired. [Server.Define] adds a kind. [StartEtcdCluster] is the same for an etcd cluster of three members.
package kubetest

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/seamark/seamark/kubetest/control"
)

// silence turns klog off. It runs once in a process because klog's logger must
// not be replaced during a call of it.
var silence = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// A Server is an API server and its etcd. Its methods may be called from several
// goroutines.
type Server struct {
	*child
	dir  string
	info control.Server
}

// Start runs etcd and the API server with their data in dir, which must exist and
// be empty, and returns when every watch cache is filled. The context bounds the
// start alone; the server runs until Stop. The first Start in a process silences
// klog, client-go's log included.
func Start(ctx context.Context, dir string) (*Server, error) {
	silence()
	c, err := startChild(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting an API server: %w", err)
	}
	s := &Server{child: c, dir: dir}
	if err = c.call(ctx, control.Machinery, "Start", control.StartArgs{Wait: wait(ctx), Dir: dir}, &s.info); err == nil {
		err = os.WriteFile(s.CAFile(), s.info.CA, 0o600)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("starting an API server: %w", err)
	}
	return s, nil
}

// StartAPI starts the API server after StopAPI, on the same port and the same
// data, and returns when it is ready. It does nothing if the server runs. The
// context bounds the start alone.
func (s *Server) StartAPI(ctx context.Context) error {
	return s.call(ctx, control.Machinery, "StartAPI", wait(ctx), &control.None{})
}

// StopAPI stops the API server as a crash would: every connection is cut, no
// response is completed, and connections are refused until StartAPI. The data
// stay. It does nothing if the server does not run.
func (s *Server) StopAPI() {
	// The only error is that the process, and the API with it, has ended.
	_ = s.call(context.Background(), control.Machinery, "StopAPI", control.None{}, &control.None{})
}

// Compact drops etcd's history before the current revision. The watch cache of a
// running API server still holds it: only after StopAPI and StartAPI does a list
// or a watch at an older resourceVersion get 410 Expired.
func (s *Server) Compact(ctx context.Context) error {
	return s.call(ctx, control.Machinery, "CompactAPI", wait(ctx), &control.None{})
}

// URL returns https://127.0.0.1:port, the same for the life of the Server.
func (s *Server) URL() string { return s.info.URL }

// CAFile returns the path of a PEM file with the certificate authority of the
// serving certificate.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.crt") }

// pool returns the certificate authority.
func (s *Server) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(s.info.CA)
	return p
}

// Config returns a new client configuration for this server. Clients are not
// throttled. Set its ContentType for protobuf; the default is JSON.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:            s.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.info.CA},
		QPS:             -1,
	}
}

// Kubeconfig writes a kubeconfig for this server into the server's directory and
// returns its path. It contains the CA and no credentials.
func (s *Server) Kubeconfig() (string, error) {
	path := filepath.Join(s.dir, "kubeconfig")
	cluster := &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.info.CA}
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
