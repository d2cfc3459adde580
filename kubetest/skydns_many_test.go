package kubetest

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/freeport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// manyKeys returns four pages of a list and more; make bounds shows the cost of 100,000.
func manyKeys() int {
	if os.Getenv(bound.Checked) != "" {
		return 100_000
	}
	return 20_000
}

// startManyKeys starts an etcd with the keys of Services, as kube2sky writes them: for each an
// address, a port, and the pods of two names.
func startManyKeys(t *testing.T) *keyReader {
	t.Helper()
	s := startKeyReader(t)
	var ops []clientv3.Op
	flush := func() {
		if _, err := s.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
		ops = ops[:0]
	}
	put := func(path, value string) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(value))
		if ops = append(ops, clientv3.OpPut(fmt.Sprintf("%slocal/cluster/%s/%x", treePrefix, path, h.Sum32()), value)); len(ops) == 128 {
			flush()
		}
	}
	for i := range manyKeys() / 4 {
		ns, name := fmt.Sprintf("team-%d", i%200), fmt.Sprintf("service-%d", i)
		put("svc/"+ns+"/"+name, hostMessage(manyAddress(i)))
		put("svc/"+ns+"/"+name+"/_tcp/_http", portMessage(name+"."+ns+".svc.cluster.local.", 80))
		for pod := range 2 {
			ip := fmt.Sprintf("10.%d.%d.%d", 128+pod, i/250, i%250)
			put("pod/"+ns+"/"+strings.ReplaceAll(ip, ".", "-"), hostMessage(ip))
		}
	}
	flush()
	return s
}

func manyAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, i%250) }

func manyName(i int) string { return fmt.Sprintf("service-%d.team-%d.svc.cluster.local", i, i%200) }

// The server's program with many keys: every name is answered, before and after a partition, and
// the test logs the cost.
func TestEtcdManyKeys(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "seamark")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/seamark")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the binary: got error %v, want none\n%s", err, out)
	}
	s := startManyKeys(t)
	port := freeport.Reserve(t)
	p := &process{daemon: &daemon{T: t, at: "127.0.0.1:" + port}, ended: make(chan error, 1)}
	front := must(gate.New(nil))(t)
	t.Cleanup(front.Close)
	front.SetTarget(strings.TrimPrefix(s.at, "http://"))
	p.cmd = exec.CommandContext(t.Context(), binary, "skydns", "-machines=http://"+front.Addr(), "-addr=127.0.0.1:"+port, "-domain=cluster.local.", "-no-rec")
	p.cmd.Stdout, p.cmd.Stderr = &p.journal, &p.journal
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		t.Logf("the log of skydns:\n%s", p.log())
	})
	last := lookupA(manyName(manyKeys()/4-1), "NOERROR "+manyAddress(manyKeys()/4-1))
	// Before the server has its port, a query may reach another process: do not
	// wait long.
	probe := &dns.Client{Timeout: 50 * time.Millisecond}
	for {
		reply, _, err := probe.Exchange(last.message(), p.at)
		if answer(reply, err) == last.want {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: no answer within %v, want %s", last, patience, last.want)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("the first answer came %v after the start", time.Since(began).Round(time.Millisecond))
	resident := func(when string) {
		text := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)))(t))
		var now, most string
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				now = strings.TrimSpace(rest)
			}
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				most = strings.TrimSpace(rest)
			}
		}
		t.Logf("resident %s: %s, at most %s", when, now, most)
	}
	resident("after the first answer")
	for i := 0; i < manyKeys()/4; i += 7 {
		if got, want := p.askUDP(lookupA(manyName(i), "")), "NOERROR "+manyAddress(i); got != want {
			t.Fatalf("%s: got %s, want %s", manyName(i), got, want)
		}
	}
	resident("after a query for every seventh name")
	conn := must(dns.Dial("udp", p.at))(t)
	defer conn.Close()
	client := &dns.Client{Timeout: replyTime}
	var took latencies
	for i := range 1000 {
		want := fmt.Sprintf("10.20.%d.%d", i/250, i%250)
		name := fmt.Sprintf("changes-%d.team-7.svc.cluster.local", i%50)
		if _, err := s.client.Put(t.Context(), keyOfName("/skydns", name), hostMessage(want)); err != nil {
			t.Fatal(err)
		}
		put := time.Now()
		q := lookupA(name, "NOERROR "+want)
		for {
			reply, _, err := client.ExchangeWithConn(q.message(), conn)
			if answer(reply, err) == q.want {
				break
			}
			if time.Since(put) > patience {
				t.Fatalf("%s: got %s, want %s", q, answer(reply, err), q.want)
			}
		}
		took = append(took, time.Since(put))
	}
	t.Logf("a put is answered after: %v", took)
	resident("after 1,000 puts")

	// Partitioned and compacted: the keys are listed again, while queries
	// continue.
	front.SetFault("", gate.Refused)
	for i := range 10 {
		s.put("local/cluster/svc/team-7/early", hostMessage(fmt.Sprintf("10.21.1.%d", i)))
	}
	s.put("local/cluster/svc/team-7/late", hostMessage("10.21.0.1"))
	now := must(s.client.Get(t.Context(), "/"))(t)
	if _, err := s.client.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	front.SetFault("", gate.Open)
	began = time.Now()
	late := lookupA("late.team-7.svc.cluster.local", "NOERROR 10.21.0.1")
	for p.askUDP(late) != late.want {
		if got := p.askUDP(last); got != last.want {
			t.Fatalf("%s: got %s, want %s", last, got, last.want)
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: no answer within %v of the end of the partition", late, patience)
		}
	}
	t.Logf("another list took %v, including the pause before the attempt", time.Since(began).Round(time.Millisecond))
	resident("after another list")
}

// askUDP sends a query once by UDP.
func (d *daemon) askUDP(q lookup) string {
	reply, _, err := (&dns.Client{Timeout: replyTime}).Exchange(q.message(), d.at)
	return answer(reply, err)
}
