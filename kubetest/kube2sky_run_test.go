package kubetest

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/test/chaintest"
)

// A keyReader reads the keys of an etcd.
type keyReader struct {
	*testing.T
	client *clientv3.Client
	at     string // URLs, with commas
}

// startKeyReader starts an etcd of one member.
func startKeyReader(t *testing.T) *keyReader {
	t.Helper()
	c := startEtcdCluster(t, EtcdOptions{Members: 1})
	url := c.Endpoints()[0]
	return &keyReader{t, etcdClient(t, c.Config(), url), url}
}

const (
	treePrefix = "/skydns/"
	ownPrefix  = "/seamark/kube2sky/cluster.local/skydns/"
)

// keys returns the keys below a prefix, without it, and their values.
func (s *keyReader) keys(prefix string) map[string]string {
	s.Helper()
	all := map[string]string{}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	r, err := s.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		s.Fatal(err)
	}
	for _, kv := range r.Kvs {
		all[string(kv.Key[len(prefix):])] = string(kv.Value)
	}
	return all
}

// awaitKeys waits until the tree has these keys, and checks that each key has
// an ownership mark, except others.
func (s *keyReader) awaitKeys(want map[string]string, others ...string) {
	s.Helper()
	var got map[string]string
	deadline := time.Now().Add(patience)
	for {
		if got = s.keys(treePrefix); maps.Equal(got, want) {
			break
		}
		if time.Now().After(deadline) {
			s.Fatalf("keys below %s: got\n%s\nwant\n%s", treePrefix, listed(got), listed(want))
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, key := range others {
		delete(got, key)
	}
	marks := s.keys(ownPrefix + "owned/")
	for path, value := range got {
		if marks[path] != fnvHash(value) {
			s.Errorf("ownership mark of %s: got %q, want %q", path, marks[path], fnvHash(value))
		}
		delete(marks, path)
	}
	if len(marks) > 0 {
		s.Errorf("ownership marks without keys: got\n%s\nwant none", listed(marks))
	}
}

func listed(all map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s %s\n", key, all[key])
	}
	return text.String()
}

func (s *keyReader) put(path, value string) {
	s.Helper()
	if _, err := s.client.Put(s.Context(), treePrefix+path, value); err != nil {
		s.Fatal(err)
	}
}

func fnvHash(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value))
	return fmt.Sprintf("%x", h.Sum32())
}

func hostMessage(host string) string {
	return `{"host":"` + host + `","priority":10,"weight":10,"ttl":30}`
}

func portMessage(host string, port int) string {
	return fmt.Sprintf(`{"host":"%s","port":%d,"priority":10,"weight":10,"ttl":30}`, host, port)
}

// keysOfRecords returns the keys of a tree. A line has a path below the cluster's
// domain or below arpa, a host, and the port of an SRV record. A path that ends
// with a slash gets the hash of its value as its last label; #10.0.0.1 is the
// hash of an address.
func keysOfRecords(lines ...string) map[string]string {
	all := map[string]string{}
	for _, line := range lines {
		words := strings.Fields(line)
		path, value := words[0], hostMessage(words[1])
		if len(words) > 2 {
			port, _ := strconv.Atoi(words[2])
			value = portMessage(words[1], port)
		}
		if strings.HasSuffix(path, "/") {
			path += fnvHash(value)
		}
		if before, address, ok := strings.Cut(path, "#"); ok {
			path = before + fnvHash(hostMessage(address))
		}
		if !strings.HasPrefix(path, "arpa/") {
			path = "local/cluster/" + path
		}
		all[path] = value
	}
	return all
}

// A kube2sky is a process of the command kube2sky.
type kube2sky struct {
	*process
	pages string
}

func startKube2sky(t *testing.T, srv *Server, etcd string, more ...string) *kube2sky {
	t.Helper()
	args := append([]string{
		"--v=2", "--domain=cluster.local", "--kubecfg-file=" + must(srv.Kubeconfig())(t), "--etcd-server=" + etcd, "--healthz-port=0",
	}, more...)
	p := program(t, "", "kube2sky", nil, args...)
	address := regexp.MustCompile(`Serving status pages address=\[::\]:(\d+)`)
	var found []string
	chaintest.Eventually(t, "the address of the status pages in the log", func() bool {
		found = address.FindStringSubmatch(p.log())
		return found != nil
	})
	return &kube2sky{p, "http://127.0.0.1:" + found[1]}
}

func (b *kube2sky) page(path string) (int, string) {
	resp, err := http.Get(b.pages + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func (b *kube2sky) ready() {
	b.Helper()
	chaintest.Eventually(b.T, "readiness", func() bool { code, text := b.page("/readiness"); return code == http.StatusOK && text == "ok\n" })
}

// number returns the value of a series, -1 if there is none.
func (b *kube2sky) number(series string) float64 {
	_, text := b.page("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return -1
}

func (b *kube2sky) leads() bool { return b.number("seamark_kube2sky_leader") == 1 }

// kill kills the process.
func (b *kube2sky) kill() {
	b.Helper()
	if err := b.cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	b.ended <- <-b.ended // for the test's cleanup, which also waits for it
}
