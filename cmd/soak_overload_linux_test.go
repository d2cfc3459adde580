package cmd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// overloadServer starts the server, or the program SOAK_SERVER with the same Corefile, in
// a control group with a tenth of a processor, so that the test can send many times what
// it can answer. It skips the test where that is not permitted.
func overloadServer(t *testing.T) (p *process, at string) {
	t.Helper()
	v1 := "/sys/fs/cgroup/cpu"
	dir := filepath.Join("/sys/fs/cgroup", fmt.Sprintf("seamark-test-%d", os.Getpid()))
	settings := map[string]string{"cpu.max": "1000 10000"}
	if _, err := os.Stat(filepath.Join(v1, "cpu.cfs_quota_us")); err == nil {
		dir = filepath.Join(v1, filepath.Base(dir))
		settings = map[string]string{"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "1000"}
	}
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	for file, value := range settings {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
		}
	}
	if err != nil {
		t.Skipf("making a CPU control group: %v", err)
	}
	work := t.TempDir()
	at = "127.0.0.1:" + freeport.Reserve(t)
	_, port, _ := net.SplitHostPort(at)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	write(t, filepath.Join(work, "Corefile"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n hosts {\n  192.0.2.1 a.example.org\n }\n}\nsilent.test:%[1]s {\n bind 127.0.0.1\n forward . %s {\n  max_fails 0\n }\n}\n",
		port, silent.LocalAddr()))
	c := program.Command(t, work, "-conf", "Corefile")
	if other := os.Getenv("SOAK_SERVER"); other != "" {
		c.Path, c.Args[0] = other, other
	}
	c.Args = append([]string{"sh", "-c", fmt.Sprintf(`echo $$ >%s/cgroup.procs && exec "$0" "$@"`, dir), c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	return start(t, c, os.Stderr, ""), at
}

// residentMemory returns the memory of the process in MB.
func residentMemory(t *testing.T, p *process) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kb, _ := strconv.Atoi(strings.Fields(after)[0])
	return float64(kb) / 1024
}

// TestSoakOverload sends up to ten times as many queries as the server can answer over UDP,
// first from a hundred equal clients and then from one of them, over TCP from a hundred
// clients, and over TCP from a client with a hundred connections. It takes SOAK for each.
func TestSoakOverload(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("it takes minutes; make soak runs it")
	}
	duration, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatal(err)
	}
	duration = min(duration, time.Minute)
	strict := os.Getenv("SOAK_SERVER") == ""
	check := func(t *testing.T, ok bool, format string, args ...any) {
		t.Helper()
		if t.Logf(format, args...); strict && !ok {
			t.Errorf("that is outside the guarantee")
		}
	}
	p, at := overloadServer(t)
	defer p.stop()
	g := newGenerator(t, at, 100, func(int) string { return "a.example.org." })
	capacity := g.peak()
	before := residentMemory(t, p)
	t.Logf("the server answers %.0f queries in a second and has %.1f MB of resident memory", capacity, before)
	recovered := func(t *testing.T) {
		t.Helper()
		g.open(0.5*capacity, 0, 500*time.Millisecond)
		l, _ := g.open(0.5*capacity, 0, 5*time.Second)
		check(t, l.part() >= 0.99, "from a second after that: %.0f queries sent, %.4f answered", l.sent, l.part())
	}

	// used measures the capacity again, since that of the machine changes, and returns the
	// part of the mean that was answered.
	used := func(answered float64) float64 {
		before := capacity
		capacity = g.peak()
		return answered / ((before + capacity) / 2)
	}

	t.Run("equal", func(t *testing.T) {
		l, _ := g.open(10*capacity, 0, duration)
		sent := l.sent / duration.Seconds() / capacity
		part := used(l.rate)
		check(t, part >= 0.9, "a hundred equal clients: %.1f times the capacity sent, %.2f of the capacity answered", sent, part)
		recovered(t)
	})
	t.Run("greedy", func(t *testing.T) {
		l, greedy := g.open(0.5*capacity, 9.5*capacity, duration)
		sent := (l.sent + greedy.sent) / duration.Seconds() / capacity
		check(t, l.part() >= 0.9, "one greedy client: %.4f of the queries of 99 others answered, %.3f of its own; %.1f times the capacity sent, %.2f of the capacity answered",
			l.part(), greedy.part(), sent, used(l.rate+greedy.rate))
		recovered(t)
	})
	t.Run("all", func(t *testing.T) {
		l, greedy := g.open(2*capacity, 8*capacity, duration)
		check(t, greedy.later <= 1.1*l.later/99, "one greedy client beside 99 others that send twice the capacity: from a second on it got %.2f times the answers of another, in all %.2f times",
			greedy.later/(l.later/99), greedy.got/(l.got/99))
		sent := (l.sent + greedy.sent) / duration.Seconds() / capacity
		part := used(l.rate + greedy.rate)
		check(t, part >= 0.9, "that is %.0f answers in a second; %.1f times the capacity sent, %.2f of the capacity answered", l.rate+greedy.rate, sent, part)
		recovered(t)
	})
	after := residentMemory(t, p)
	check(t, after < before+10, "%.1f MB of resident memory", after)
	t.Run("waiting", func(t *testing.T) {
		g := newGenerator(t, at, 100, func(i int) string {
			if i%2 == 0 {
				return "a.example.org."
			}
			return fmt.Sprintf("a%d.silent.test.", i)
		})
		l, _ := g.open(10*capacity, 0, duration) // only answers with NOERROR are counted
		part := used(l.rate)
		check(t, part >= 0.45, "fifty clients beside fifty that query names of an upstream that does not reply: %.2f of the capacity answered", part)
		recovered(t)
		after := residentMemory(t, p)
		check(t, after < before+20, "%.1f MB of resident memory", after)
	})

	t.Run("tcp", func(t *testing.T) {
		capacity := tcpClosed(at, 100, 4*time.Second)
		answers, sent := tcpOpen(at, 10*capacity, duration)
		slices.Sort(answers)
		all := 0.0
		for _, n := range answers {
			all += n
		}
		capacity = (capacity + tcpClosed(at, 100, 4*time.Second)) / 2
		part, fair := all/duration.Seconds()/capacity, answers[0]/(all/float64(len(answers)))
		check(t, part >= 0.9 && fair >= 0.5, "TCP: %.1f times the capacity of %.0f sent, %.2f of it answered; the client with the fewest answers got %.2f of the mean, and the one with most %.2f",
			sent/duration.Seconds()/capacity, capacity, part, fair, answers[len(answers)-1]/(all/float64(len(answers))))
		after := residentMemory(t, p)
		check(t, after < before+20, "%.1f MB of resident memory", after)
		recovered(t)
	})
	t.Run("greedy TCP", func(t *testing.T) {
		var waits []time.Duration
		failed, greedyAnswers := greedyTCP(at, duration, &waits)
		slices.Sort(waits)
		median := time.Duration(0)
		if len(waits) > 0 {
			median = waits[len(waits)/2]
		}
		check(t, failed == 0 && len(waits) > 0, "TCP: 99 clients got %d answers within %v in the median, and %d of their queries got none; a client with a hundred connections got %.0f in a second", len(waits), median, failed, greedyAnswers/duration.Seconds())
		after := residentMemory(t, p)
		check(t, after < before+20, "%.1f MB of resident memory", after)
	})
}

// greedyTCP sends queries over a hundred connections of one client, as fast as they are
// accepted, and five in a second from each of 99 others. It returns how many of the
// others' queries failed, or got no reply within five seconds.
func greedyTCP(at string, duration time.Duration, waits *[]time.Duration) (failed int, greedyAnswers float64) {
	packet := overloadQuery()
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	many := slices.Repeat(framed, 100)
	end := time.Now().Add(duration)
	dial := func(i int) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 8, byte(i+1))}, Timeout: 5 * time.Second}
		return d.Dial("tcp", at)
	}
	var tasks sync.WaitGroup
	var mu sync.Mutex
	var bytes atomic.Int64
	for range 100 {
		tasks.Go(func() {
			c, err := dial(99)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(end)
			tasks.Go(func() {
				for buf := make([]byte, 64<<10); ; {
					n, err := c.Read(buf)
					bytes.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			for err == nil {
				_, err = c.Write(many)
			}
		})
	}
	for i := range 99 {
		tasks.Go(func() {
			var c net.Conn
			var err error
			reply := make([]byte, 512)
			for next := time.Now().Add(time.Duration(i) * 2 * time.Millisecond); next.Before(end); next = next.Add(200 * time.Millisecond) {
				time.Sleep(time.Until(next))
				start := time.Now()
				if c == nil {
					c, err = dial(i)
				}
				if err == nil {
					_ = c.SetDeadline(start.Add(5 * time.Second))
					if _, err = c.Write(framed); err == nil {
						if _, err = io.ReadFull(c, reply[:2]); err == nil {
							_, err = io.ReadFull(c, reply[:binary.BigEndian.Uint16(reply)])
						}
					}
				}
				mu.Lock()
				if err == nil {
					*waits = append(*waits, time.Since(start))
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil && c != nil {
					c.Close()
					c, err = nil, nil
				}
			}
			if c != nil {
				c.Close()
			}
		})
	}
	tasks.Wait()
	return failed, float64(bytes.Load()) / float64(len(framed)+16)
}

func overloadQuery() []byte {
	packet, err := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA).Pack()
	if err != nil {
		panic(err)
	}
	return packet
}
