package kubetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/test/chaintest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each member crashes and restarts under load, the leader first: no query is
// lost, and writes are seen.
func TestEtcdMembersCrash(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(stableNames()...)
	load := d.startLoad(stableNames()...)
	for round := range 4 {
		member := round % EtcdMembers
		if round == 0 {
			member = etcdLeader(t, s.EtcdCluster)
		}
		s.Kill(member)
		s.updateEndpoints()
		want := fmt.Sprintf("10.9.0.%d", round)
		s.put("changes.skydns.test", `{"host":"`+want+`"}`)
		d.await(lookupA("changes.skydns.test", "NOERROR "+want))
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		if err := s.Restart(ctx, member); err != nil {
			t.Fatal(err)
		}
		cancel()
		s.updateEndpoints()
		s.remove("changes.skydns.test")
		d.await(lookupA("changes.skydns.test", "NXDOMAIN"))
	}
	load.stop()
	if n := d.metric(`seamark_etcd_lists_total{path="/skydns/"}`); n != 1 {
		t.Errorf("lists: got %v, want 1", n)
	}
}

// A member is partitioned, silently or not, from the server or from the other
// members: the others are used.
func TestEtcdPartitions(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(stableNames()...)
	load := d.startLoad(stableNames()...)
	round := 0
	for _, fault := range []gate.Fault{gate.Refused, gate.Silent} {
		for member := range EtcdMembers {
			for _, cut := range []func(int, gate.Fault){s.Clients, s.Peers} {
				round++
				cut(member, fault)
				// Write through a member that is not partitioned, another name
				// each time: a timed-out write may be applied later.
				s.writer.SetEndpoints(s.Direct()[(member+1)%EtcdMembers])
				name := fmt.Sprintf("round%d.skydns.test", round)
				s.put(name, `{"host":"10.9.0.1"}`)
				d.await(lookupA(name, "NOERROR 10.9.0.1"))
				s.Heal()
			}
		}
	}
	load.stop()
	t.Logf("%d warnings that etcd failed", d.logs("etcd failed, retrying"))
}

// All members are unavailable: the last state is served, and one line is logged. A
// server that starts then answers SERVFAIL until they are back.
func TestEtcdUnavailable(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	s.put("changes.skydns.test", `{"host":"10.9.0.1"}`)
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(stableNames()...)
	load := d.startLoad(stableNames()...)
	for member := range EtcdMembers {
		s.Kill(member)
	}
	late := serve(t, etcdCorefile(s.Endpoints()))
	late.check(lookupA("stays0.skydns.test", "SERVFAIL"), lookupA("never.skydns.test", "SERVFAIL"))
	chaintest.Eventually(t, "a warning that etcd failed", func() bool { return d.logs("etcd failed, retrying", "from the last state") > 0 })
	chaintest.Eventually(t, "a warning that etcd failed", func() bool { return late.logs("etcd failed, retrying", "answers=SERVFAIL") > 0 })
	if late.isReadyNow() {
		t.Error("ready: got true without the keys, want false")
	}
	failures := d.metric(`seamark_etcd_failures_total{path="/skydns/"}`)
	chaintest.Eventually(t, "another failure", func() bool { return d.metric(`seamark_etcd_failures_total{path="/skydns/"}`) > failures })
	d.check(lookupA("changes.skydns.test", "NOERROR 10.9.0.1"))
	d.checkWarnings()
	// An unrelated reload works meanwhile.
	d.reload(etcdCorefile(s.Endpoints()) + "other.test {\n whoami\n}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	back := make(chan error)
	for member := range EtcdMembers {
		go func() { back <- s.Restart(ctx, member) }()
	}
	for range EtcdMembers {
		if err := <-back; err != nil {
			t.Fatal(err)
		}
	}
	s.updateEndpoints()
	s.put("changes.skydns.test", `{"host":"10.9.0.2"}`)
	for _, one := range []*daemon{d, late} {
		one.await(lookupA("changes.skydns.test", "NOERROR 10.9.0.2"))
		one.check(stableNames()...)
		one.checkWarnings()
		if n := one.logs("etcd recovered"); n != 1 {
			t.Errorf("log lines that etcd recovered: got %d, want 1", n)
		}
	}
	load.stop()
}

// checkWarnings checks that each reason for a failure of etcd is logged once.
func (d *daemon) checkWarnings() {
	d.Helper()
	reasons := map[string]bool{}
	for line := range strings.Lines(d.log()) {
		if _, reason, ok := strings.Cut(line, "etcd failed, retrying"); ok {
			if reasons[reason] {
				d.Errorf("got the reason %s twice in the log, want it once", reason)
			}
			reasons[reason] = true
		}
	}
	if len(reasons) == 0 {
		d.Errorf("got log\n%s\nwant a warning that etcd failed", d.log())
	}
}

// The server is partitioned, and its revision is compacted when it is back: it
// lists again. Deleted keys are gone, and others are always answered.
func TestEtcdCompaction(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	for i := range 100 {
		s.put(fmt.Sprintf("n%d.goes.skydns.test", i), `{"host":"10.8.0.1"}`)
	}
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(append(stableNames(), lookupA("n7.goes.skydns.test", "NOERROR 10.8.0.1"))...)
	load := d.startLoad(stableNames()...)
	for round, fault := range []gate.Fault{gate.Refused, gate.Silent} {
		failures := d.logs("etcd failed, retrying")
		for member := range EtcdMembers {
			s.Clients(member, fault)
		}
		if fault == gate.Silent { // until the server closes its connections
			chaintest.Eventually(t, "a warning that etcd failed", func() bool { return d.logs("etcd failed, retrying") > failures })
		}
		s.removeBelow("goes.skydns.test")
		s.put("comes.skydns.test", fmt.Sprintf(`{"host":"10.7.0.%d"}`, round))
		s.put("stays0.skydns.test", `{"host":"10.0.0.1","priority":1}`) // The address is the same.
		_ = must(s.Compact(t.Context()))(t)
		d.check(lookupA("n7.goes.skydns.test", "NOERROR 10.8.0.1"))
		s.Heal()
		d.await(lookupA("comes.skydns.test", fmt.Sprintf("NOERROR 10.7.0.%d", round)), lookupA("goes.skydns.test", "NXDOMAIN"), lookupA("n7.goes.skydns.test", "NXDOMAIN"))
		if n := d.metric(`seamark_etcd_lists_total{path="/skydns/"}`); int(n) != round+2 {
			t.Errorf("lists after round %d: got %v, want %d", round, n, round+2)
		}
		s.put("n7.goes.skydns.test", `{"host":"10.8.0.1"}`)
		d.awaitChange("a put", lookupA("n7.goes.skydns.test", "NOERROR 10.8.0.1"))
	}
	load.stop()
}

// Writes fail: every query is answered.
func TestEtcdQuota(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{Quota: 4 << 20})
	s.putStableNames()
	d := serve(t, etcdCorefile(s.Endpoints()))
	d.await(stableNames()...)
	load := d.startLoad(stableNames()...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := s.Fill(ctx); err != nil {
		t.Fatal(err)
	}
	late := serve(t, etcdCorefile(s.Endpoints()))
	late.await(stableNames()...)
	if err := s.Free(ctx); err != nil {
		t.Fatal(err)
	}
	s.put("comes.skydns.test", `{"host":"10.7.0.1"}`)
	for _, one := range []*daemon{d, late} {
		one.await(lookupA("comes.skydns.test", "NOERROR 10.7.0.1"))
		if n := one.logs("etcd failed, retrying"); n > 0 {
			t.Errorf("warnings that etcd failed: got %d, want 0", n)
		}
	}
	load.stop()
}

// etcd is restored from a backup: keys that the backup lacks are deleted.
func TestEtcdRestoredFromBackup(t *testing.T) {
	t.Parallel()
	first := startKeyReader(t)
	for i := range 50 {
		first.put(fmt.Sprintf("test/skydns/n%d", i), `{"host":"10.0.0.1"}`)
	}
	front := must(gate.New(nil))(t)
	t.Cleanup(front.Close)
	front.SetTarget(first.client.Endpoints()[0][len("http://"):])
	d := serve(t, etcdCorefile([]string{"http://" + front.Addr()}))
	d.await(lookupA("n49.skydns.test", "NOERROR 10.0.0.1"))
	second := startKeyReader(t)
	second.put("test/skydns/n0", `{"host":"10.0.0.2"}`)
	front.SetTarget(second.client.Endpoints()[0][len("http://"):])
	d.await(lookupA("n49.skydns.test", "NXDOMAIN"), lookupA("n0.skydns.test", "NOERROR 10.0.0.2"))
	second.put("test/skydns/n1", `{"host":"10.0.0.3"}`)
	d.awaitChange("a put", lookupA("n1.skydns.test", "NOERROR 10.0.0.3"))
}

// With watch off, or with more keys than the limit, each query reads etcd, also
// while members crash.
func TestEtcdWithoutWatch(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	s.putStableNames()
	off := serve(t, etcdCorefile(s.Endpoints(), "watch off"))
	few := serve(t, etcdCorefile(s.Endpoints(), "most 10"))
	all := serve(t, etcdCorefile(s.Endpoints(), "most 24"))
	for _, d := range []*daemon{off, few, all} {
		d.await(stableNames()...)
		d.await(lookupSRV("stays0.skydns.test", "NOERROR 10 100 0 stays0.skydns.test."))
		if !d.isReadyNow() {
			t.Error("ready: got false with the keys, want true")
		}
	}
	if n := few.logs("Too many keys in etcd", "path=/skydns/", "count=20", "limit=10"); n != 1 {
		t.Errorf("log lines about too many keys: got %d, want 1", n)
	}
	// The number of keys exceeds the limit, and falls below it again.
	load := all.startLoad(stableNames()...)
	for i := range 6 {
		s.put(fmt.Sprintf("n%d.more.skydns.test", i), `{"host":"10.8.0.1"}`)
	}
	chaintest.Eventually(t, "too many keys", func() bool { return all.logs("Too many keys in etcd", "limit=24") == 1 })
	all.await(lookupA("more.skydns.test", "NOERROR 10.8.0.1"))
	s.put("n7.more.skydns.test", `{"host":"10.8.0.2"}`)
	all.check(lookupA("more.skydns.test", "NOERROR 10.8.0.1 10.8.0.2"))
	s.removeBelow("more.skydns.test")
	all.check(lookupA("more.skydns.test", "NXDOMAIN"))
	chaintest.Eventually(t, "all keys in the index", func() bool { return all.metric(`seamark_etcd_keys{path="/skydns/"}`) == 20 })
	all.check(stableNames()...)
	load.stop()

	member := etcdLeader(t, s.EtcdCluster)
	loads := []*queryLoad{off.startLoad(stableNames()...), few.startLoad(stableNames()...)}
	follower := (member + 1) % EtcdMembers
	s.Kill(follower)
	for range 5 { // These queries are sent while a member does not run.
		off.check(stableNames()...)
		few.check(stableNames()...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := s.Restart(ctx, follower); err != nil {
		t.Fatal(err)
	}
	for _, load := range loads {
		load.stop()
	}
	for member := range EtcdMembers {
		s.Kill(member)
	}
	off.check(lookupA("stays0.skydns.test", "SERVFAIL"))
}

// A name has more keys below it than one response contains: the requested record
// may be the last one.
func TestEtcdWithoutWatchManyKeys(t *testing.T) {
	t.Parallel()
	s := newDNSStore(t, EtcdOptions{})
	const keys = 5500
	var puts []clientv3.Op
	for i := range keys {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("/skydns/test/skydns/big/k%05d", i), `{"text":"x"}`))
		if len(puts) == 100 {
			must(s.writer.Txn(t.Context()).Then(puts...).Commit())(t)
			puts = nil
		}
	}
	s.put("z.big.skydns.test", `{"host":"10.5.5.5"}`)
	d := serve(t, etcdCorefile(s.Endpoints(), "watch off"))
	d.await(lookupA("z.big.skydns.test", "NOERROR 10.5.5.5"), lookupA("big.skydns.test", "NOERROR 10.5.5.5"), lookupAAAA("big.skydns.test", "NOERROR"))
}
