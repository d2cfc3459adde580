package kubetest

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/kubetest/certs"
	"github.com/seamark/seamark/test/chaintest"
)

// A client without a certificate, or with one of another CA, is rejected and logs the
// reason. Renewed files, including the CA's, are used for the next connection.
func TestEtcdTLS(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{TLS: true})
	s.putStableNames()
	cert, key, ca := s.ClientTLS()
	dir := t.TempDir()
	file := func(name string, from string) string {
		t.Helper()
		to := filepath.Join(dir, name)
		text := must(os.ReadFile(from))(t)
		// Atomically, as in a mounted volume.
		if err := os.WriteFile(to+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(to+".new", to); err != nil {
			t.Fatal(err)
		}
		return to
	}
	// A certificate of an unknown CA.
	unknown := must(certs.New())(t)
	unknownCert, unknownKey, err := unknown.Sign("unknown", x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	other := func(name string, text []byte) string {
		t.Helper()
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	wrongCert, wrongKey, wrongCA := other("crt", unknownCert), other("key", unknownKey), other("ca", unknown.CA)

	good := serve(t, etcdCorefile(s.Endpoints(), "tls "+cert+" "+key+" "+ca))
	withoutCert := serve(t, etcdCorefile(s.Endpoints(), "tls "+ca))
	otherCert := serve(t, etcdCorefile(s.Endpoints(), "tls "+file("crt", wrongCert)+" "+file("key", wrongKey)+" "+ca))
	otherCA := serve(t, etcdCorefile(s.Endpoints(), "tls "+cert+" "+key+" "+file("ca", wrongCA)))
	plain := serve(t, etcdCorefile([]string{strings.Replace(s.Endpoints()[0], "https:", "http:", 1)}))
	good.await(stableNames()...)
	for _, bad := range []*daemon{withoutCert, otherCert, otherCA, plain} {
		chaintest.Eventually(t, "a warning that etcd failed", func() bool { return bad.logs("etcd failed, retrying", "answers=SERVFAIL") > 0 })
		bad.check(lookupA("stays0.skydns.test", "SERVFAIL"))
		for line := range strings.Lines(bad.log()) {
			if strings.Contains(line, "etcd failed, retrying") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
	// Timeouts may come first; the cause is logged once it is known. Each takes 5 s, and the
	// next attempt as long again.
	chaintest.Eventually(t, "a warning about the CA", func() bool {
		return otherCA.logs("etcd failed, retrying", "certificate signed by unknown authority") == 1
	})
	chaintest.Eventually(t, "a warning about the missing certificate", func() bool { return withoutCert.logs("etcd failed, retrying", "certificate") > 0 })
	file("crt", cert)
	file("key", key)
	file("ca", ca)
	otherCert.await(stableNames()...)
	otherCA.await(stableNames()...)
	load := good.startLoad(stableNames()...)
	s.Kill(etcdLeader(t, s.EtcdCluster)) // to make the client connect again
	s.updateEndpoints()
	s.put("comes.skydns.test", `{"host":"10.7.0.1"}`)
	for _, d := range []*daemon{good, otherCert, otherCA} {
		d.await(lookupA("comes.skydns.test", "NOERROR 10.7.0.1"))
	}
	load.stop()
}

// A wrong password is logged once, and used as soon as it becomes valid. The same is
// true of a user without permission to read the keys, and when authentication is
// enabled or disabled.
func TestEtcdPasswords(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{Username: "root", Password: "secret"})
	s.putStableNames()
	try := func(what string, do func(context.Context) error) { t.Helper(); s.retry(what, do) }
	user := func(name, password string) {
		try("adding a user", func(ctx context.Context) error { _, err := s.writer.UserAdd(ctx, name, password); return err })
	}
	user("dns", "right")
	user("poor", "right")
	try("adding a role", func(ctx context.Context) error { _, err := s.writer.RoleAdd(ctx, "reads"); return err })
	try("granting a permission", func(ctx context.Context) error {
		_, err := s.writer.RoleGrantPermission(ctx, "reads", "/skydns/", "/skydns0", 0)
		return err
	})
	try("granting a role", func(ctx context.Context) error { _, err := s.writer.UserGrantRole(ctx, "dns", "reads"); return err })

	good := serve(t, etcdCorefile(s.Endpoints(), "credentials dns right"))
	wrong := serve(t, etcdCorefile(s.Endpoints(), "credentials dns wrong"))
	noRole := serve(t, etcdCorefile(s.Endpoints(), "credentials poor right"))
	withoutUser := serve(t, etcdCorefile(s.Endpoints()))
	good.await(stableNames()...)
	for d, word := range map[*daemon]string{wrong: "authentication failed", noRole: "permission denied", withoutUser: "authentication required"} {
		chaintest.Eventually(t, word, func() bool { return d.logs("etcd failed, retrying", word) == 1 })
		d.check(lookupA("stays0.skydns.test", "SERVFAIL"))
		failures := d.metric(`seamark_etcd_failures_total{path="/skydns/"}`)
		chaintest.Eventually(t, "another failure", func() bool { return d.metric(`seamark_etcd_failures_total{path="/skydns/"}`) > failures })
		if n := d.logs("etcd failed, retrying", word); n != 1 {
			t.Errorf("warnings with %q: got %d, want 1", word, n)
		}
	}
	load := good.startLoad(stableNames()...)
	try("changing a password", func(ctx context.Context) error {
		_, err := s.writer.UserChangePassword(ctx, "dns", "wrong")
		return err
	})
	try("granting a role", func(ctx context.Context) error { _, err := s.writer.UserGrantRole(ctx, "poor", "reads"); return err })
	wrong.await(stableNames()...)
	noRole.await(stableNames()...)

	// Without authentication, credentials are ignored.
	try("disabling authentication", func(ctx context.Context) error { _, err := s.writer.AuthDisable(ctx); return err })
	withoutUser.await(stableNames()...)
	s.put("comes.skydns.test", `{"host":"10.7.0.1"}`)
	for _, d := range []*daemon{wrong, noRole, withoutUser} {
		d.await(lookupA("comes.skydns.test", "NOERROR 10.7.0.1"))
	}
	try("enabling authentication", func(ctx context.Context) error { _, err := s.writer.AuthEnable(ctx); return err })
	s.put("comes.skydns.test", `{"host":"10.7.0.2"}`)
	for _, d := range []*daemon{wrong, noRole} {
		d.await(lookupA("comes.skydns.test", "NOERROR 10.7.0.2"))
	}
	load.stop()
}

// etcd starts after the server: until then names in its zones are SERVFAIL, and
// others are answered.
func TestEtcdStartsLater(t *testing.T) {
	t.Parallel()
	at := freeAddress(t)
	d := serve(t, etcdCorefile([]string{at})+"other.test {\n whoami\n}\n")
	d.check(lookupA("stays0.skydns.test", "SERVFAIL"), lookupA("other.test", "NOERROR"))
	chaintest.Eventually(t, "a warning that etcd failed", func() bool {
		return d.logs("etcd failed, retrying", "answers=SERVFAIL", "connection refused") == 1
	})
	if d.isReadyNow() {
		t.Error("ready: got true without etcd, want false")
	}
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	d.reload(etcdCorefile(s.Endpoints()) + "other.test {\n whoami\n}\n")
	d.check(stableNames()...)
	if !d.isReadyNow() {
		t.Error("ready: got false with the keys, want true")
	}
}

// Blocks with the same etcd and path share its keys. A reload with another path
// has its keys before it answers; one whose etcd is unreachable fails, and the
// old plan continues.
func TestEtcdReload(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	for i := range 20 {
		name := stableNames()[i].name
		s.set(keyOfName("/other", name), strings.Replace(`{"host":"IP","ttl":5}`, "IP", strings.TrimPrefix(stableNames()[i].want, "NOERROR "), 1))
	}
	s.set(keyOfName("/other", "x.other.test"), `{"host":"10.3.0.1"}`)
	text := etcdCorefile(s.Endpoints()) + "stays0.skydns.test {\n etcd skydns.test {\n  endpoint " + strings.Join(s.Endpoints(), " ") + "\n }\n}\n"
	d := serve(t, text)
	d.await(stableNames()...)
	lists := func(path string) float64 { return d.metric(`seamark_etcd_lists_total{path="` + path + `"}`) }
	if n := lists("/skydns/"); n != 1 {
		t.Errorf("lists for two blocks: got %v, want 1", n)
	}
	load := d.startLoad(stableNames()...)
	for range 3 {
		d.reload(text + "other.test {\n whoami\n}\n")
		d.reload(text)
	}
	if n := lists("/skydns/"); n != 1 {
		t.Errorf("lists after reloads without a change: got %v, want 1", n)
	}
	d.reload(etcdCorefile(s.Endpoints(), "path /other"))
	d.check(stableNames()...)
	if ttl := d.ttl(stableNames()[0]); ttl != 5 {
		t.Errorf("TTL after the reload: got %d, want 5, that of the new path", ttl)
	}
	if lists("/other/") != 1 || d.metric(`seamark_etcd_keys{path="/other/"}`) != 21 || d.metric(`seamark_etcd_keys{path="/skydns/"}`) != -1 {
		t.Errorf("got %v lists and %v keys of /other/, %v keys of /skydns/; want 1, 21 and no series", lists("/other/"), d.metric(`seamark_etcd_keys{path="/other/"}`), d.metric(`seamark_etcd_keys{path="/skydns/"}`))
	}
	failed := d.logs("Reload failed")
	d.startReload(etcdCorefile([]string{freeAddress(t)}))
	chaintest.Eventually(t, "a failed reload", func() bool { return d.logs("Reload failed") == failed+1 && d.logs("were not received from") == 1 })
	d.check(stableNames()...)
	load.stop()
}
