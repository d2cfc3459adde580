package etcdclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestCheck(t *testing.T) {
	const endpoint = "endpoint: want a URL such as https://10.0.0.1:2379, or HOST:PORT, got "
	for _, c := range []struct {
		o    Options
		want string // "" for none
	}{
		{Options{}, ""},
		{Options{Endpoints: "https://127.0.0.1:2379,https://[::1]:2379/,etcd:2379"}, ""},
		{Options{Endpoints: "http://127.0.0.1:2379,"}, endpoint + `""`},
		{Options{Endpoints: "ftp://a:1,http://a:1/path"}, endpoint + "\"ftp://a:1\"\n" + endpoint + `"http://a:1/path"`},
		{Options{Endpoints: "http://a:1,https://b:1"}, "endpoint: want https:// for all or for none"},
		{Options{Endpoints: "http://a:1", CA: "ca"}, "endpoint: tls needs https:// endpoints, got http://"},
		{Options{Endpoints: "a:1", Cert: "c"}, "tls: a certificate needs its key, and a key its certificate"},
		{Options{Endpoints: "a:1", Key: "k"}, "tls: a certificate needs its key, and a key its certificate"},
		{Options{Endpoints: "a:1", Cert: "c", Key: "k", CA: "a", Username: "u", Password: "p"}, ""},
		{Options{Password: "p"}, "credentials: a password needs a user"},
		{Options{Username: "u"}, "credentials: a user needs a password"},
	} {
		got := ""
		if err := c.o.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got error %q, want %q", c.o, got, c.want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, e := range []string{"foo", "http://foo", ":2379", "a:99999", "a:0", "http://u:p@a:1", "http://a:1?x=y", "http://a:1#x", "{", "a b:1", "a:1/"} {
		if err := (Options{Endpoints: e}).Check(); err == nil {
			t.Errorf("endpoint %s: got no error", e)
		}
	}
}

func TestClientFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{CA: "/not/there"}, "reading the CA of etcd: open /not/there"},
		{Options{CA: empty}, empty + " has no certificate"},
		{Options{Cert: empty, Key: empty}, "reading the certificate for etcd: "},
	} {
		if _, err := c.o.Client(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %s", c.o, err, c.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("a: %w", context.DeadlineExceeded), "no answer within 5s"},
		{rpctypes.ErrUserEmpty, "authentication required: set a user and a password"},
		{rpctypes.ErrAuthFailed, "authentication failed: check the user and the password"},
		{rpctypes.ErrPermissionDenied, "permission denied: the user may not read the keys"},
		{rpctypes.ErrNoLeader, "the cluster has no leader"},
		{errors.New(`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`), "Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"},
		{errors.New("rpc error: code = Unavailable desc = etcdserver: leader changed"), "etcdserver: leader changed"},
		{errors.New("tls: no"), "tls: no"},
	} {
		if got := Describe(c.err); got.Error() != c.want {
			t.Errorf("Describe(%v): got %v, want %s", c.err, got, c.want)
		}
	}
	if err := Describe(nil); err != nil {
		t.Errorf("Describe(nil): got %v, want nil", err)
	}
}

// Diagnose finds the cause of a timeout: the connection is refused, or the server does
// not reply.
func TestDiagnose(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := Options{Endpoints: ln.Addr().String(), Username: "u", Password: "p"}
	if got := at.Diagnose(t.Context(), context.DeadlineExceeded).Error(); got != "no answer within 5s" {
		t.Errorf("a silent server: got %s, want no answer within 5s", got)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if got := at.Diagnose(t.Context(), context.DeadlineExceeded).Error(); !strings.HasSuffix(got, "connect: connection refused") {
		t.Errorf("a closed port: got %s, want connection refused", got)
	}
	if got := at.Diagnose(t.Context(), rpctypes.ErrNoLeader).Error(); got != "the cluster has no leader" {
		t.Errorf("an error that is not a timeout: got %s, want the cluster has no leader", got)
	}
}

// Diagnose finds why a server rejects the client's certificate, or the client the
// server's, at each attempt: the server's reason arrives after the client's handshake.
func TestDiagnoseCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		withoutCert := Options{Endpoints: server.URL, CA: ca}
		if got := withoutCert.Diagnose(t.Context(), context.DeadlineExceeded).Error(); got != "remote error: tls: certificate required" {
			t.Fatalf("a server that requires a certificate: got %s, want certificate required", got)
		}
		withoutCA := Options{Endpoints: strings.TrimPrefix(server.URL, "https://") + "," + server.URL}
		if got := withoutCA.Diagnose(t.Context(), context.DeadlineExceeded).Error(); !strings.HasSuffix(got, "certificate signed by unknown authority") {
			t.Fatalf("a server of an unknown CA: got %s, want unknown authority", got)
		}
	}
}

// A prefix covers a key and the keys below it, not keys that share the first letters.
func TestFollowerPrefixes(t *testing.T) {
	f := Follower{Prefixes: []string{"/a/b", "/c/"}, Log: slog.New(slog.DiscardHandler)}
	for key, want := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false, "/c/d": true, "/c": false, "/cd": false} {
		if got := f.follows(key); got != want {
			t.Errorf("follows(%s): got %v, want %v", key, got, want)
		}
	}
}

// A changingKV has a new revision before each reply.
type changingKV struct {
	clientv3.KV
	revision int64
}

func (k *changingKV) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	k.revision++
	at := clientv3.OpGet(key, options...).Rev()
	if at == 0 {
		at = k.revision
	}
	return &clientv3.GetResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: k.revision},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte(key), Value: fmt.Append(nil, at)}},
	}, nil
}

// The keys of all prefixes are of the revision after which they are watched, whatever changes between the reads: a
// change of one that has been read is watched.
func TestListAtOneRevision(t *testing.T) {
	f := Follower{Prefixes: []string{"/a", "/b", "/c"}}
	now, revision, err := f.list(t.Context(), &clientv3.Client{KV: &changingKV{revision: 7}})
	if want := map[string]string{"/a": "8", "/b": "8", "/c": "8"}; err != nil || !maps.Equal(now, want) || revision != 8 {
		t.Errorf("got keys of the revisions %v, %v, to watch after %d, want %v and 8", now, err, revision, want)
	}
}
