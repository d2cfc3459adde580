package cmd_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/snapshot"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
	"github.com/seamark/seamark/test/program"
)

// A fill fills all parts of the memory of a server with a large cluster.
type fill struct {
	*testing.T
	dir           string
	ports         map[string]string // by scheme
	primary       *hostilePrimary
	large, silent string // upstreams
	api, pages    string // the API server, which does not answer, and the metrics
	directives    string // further lines of the Corefile
}

// schemes of the server blocks.
var schemes = []string{"dns", "tls", "https", "quic", "https3"}

func newFill(t *testing.T) *fill {
	f := &fill{T: t, dir: t.TempDir(), ports: map[string]string{}, primary: newHostilePrimary(t), large: largeAnswers(t)}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	f.silent = silent.LocalAddr().String()
	for _, scheme := range schemes {
		f.ports[scheme] = freeport.Reserve(t)
	}
	f.api, f.pages = "http://127.0.0.1:"+freeport.Reserve(t), "127.0.0.1:"+freeport.Reserve(t)
	writeCertificate(t, f.dir)
	f.files(10)
	write(t, filepath.Join(f.dir, "Corefile"), f.corefile())
	f.snapshot()
	return f
}

// files writes a zone file and a hosts file with so many names.
func (f *fill) files(names int) {
	var zone, hosts strings.Builder
	fmt.Fprintf(&zone, "@ 60 SOA ns host %d 1 1 1 1\n", names)
	for i := range names {
		fmt.Fprintf(&zone, "n%d 60 TXT %s\n", i, strings.Repeat("x", 100))
		fmt.Fprintf(&hosts, "10.%d.%d.%d h%d.hosts.example\n", i>>16, i>>8&255, i&255, i)
	}
	for name, text := range map[string]*strings.Builder{"zone": &zone, "hosts": &hosts} {
		path := filepath.Join(f.dir, name)
		write(f.T, path+".new", text.String())
		if err := os.Rename(path+".new", path); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fill) corefile() string {
	keys := ""
	for _, scheme := range schemes {
		keys += scheme + "://.:" + f.ports[scheme] + " "
	}
	return keys + `{
 bind 127.0.0.1
 tls cert.pem key.pem
 prometheus ` + f.pages + `
` + f.directives + ` kubernetes cluster.local in-addr.arpa {
  endpoint ` + f.api + `
  snapshot snapshot
 }
 hosts hosts hosts.example {
  reload 100ms
 }
 file zone file.example {
  reload 100ms
  reload_by_mtime
 }
 secondary big.example {
  transfer from ` + f.primary.Addr().String() + `
  file big
 }
 cache
 forward silent.example ` + f.silent + ` {
  max_fails 0
 }
 forward . ` + f.large + `
}
`
}

// services and endpoints of the cluster: 9,000 Services with ten endpoints each, and 1,000
// headless ones with sixty.
func (f *fill) objects() iter.Seq2[cluster.Kind, cluster.Object] {
	return func(yield func(cluster.Kind, cluster.Object) bool) {
		for i := range 50 {
			yield(cluster.Namespaces, clustertest.Namespace(fmt.Sprintf("ns%d", i)))
		}
		for i := range 10_000 {
			ns, name, n := fmt.Sprintf("ns%d", i%50), fmt.Sprintf("svc%d", i), 10
			service := clustertest.ClusterIP(ns, name, "http 80/tcp", fmt.Sprintf("10.64.%d.%d", i/250, i%250))
			if i%10 == 0 {
				service, n = clustertest.Headless(ns, name), 60
			}
			yield(cluster.Services, service)

			endpoints := clustertest.Slice(ns, name+"-1", name, "http 80/tcp")
			endpoints.Endpoints = clustertest.Packed(n, func(j int) cluster.Endpoint {
				return cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(128 + i/250), byte(i % 250), byte(j)}), Ready: true}
			})
			yield(cluster.Slices, endpoints)
		}
	}
}

// snapshot writes the snapshot, with the options that the server's log says it needs.
func (f *fill) snapshot() {
	f.Helper()
	path, options := filepath.Join(f.dir, "snapshot"), ""
	for range 2 {
		file, err := os.Create(path)
		if err == nil {
			err = snapshot.Write(file, snapshot.Header{Written: time.Now(), Options: options}, f.objects())
		}
		if err != nil {
			f.Fatal(err)
		}
		_ = file.Close()
		if options != "" {
			return
		}

		p := launch(f.T, program.Command(f.T, f.dir, "-conf", "Corefile"), os.Stderr, "")
		for line := ""; options == ""; line = p.line() {
			if at := regexp.MustCompile(`want \\"(.*?)\\"`).FindStringSubmatch(line); at != nil {
				options = at[1]
			}
		}
		p.end()
	}
}

// from returns a dialer of one of a hundred clients.
func from(client int) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, byte(client%100+1))}, Timeout: 10 * time.Second}
}

func (f *fill) at(scheme string) string { return "127.0.0.1:" + f.ports[scheme] }

// connect opens idle connections over each transport until dialing ends, and keeps them until ctx
// ends.
func (f *fill) connect(dialing, ctx context.Context, tasks *sync.WaitGroup) {
	keep := func(c io.Closer, err error) {
		if err == nil { // else a limit refuses it
			context.AfterFunc(ctx, func() { c.Close() })
		}
	}
	config := func(protocol string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
	}

	tasks.Go(func() {
		for i := 0; i < 1500 && dialing.Err() == nil; i++ {
			keep(from(i).DialContext(dialing, "tcp", f.at("dns")))
		}
	})
	for scheme, protocol := range map[string]string{"tls": "dot", "https": "h2"} {
		tasks.Go(func() {
			for i := 0; i < 600 && dialing.Err() == nil; i++ {
				d := tls.Dialer{NetDialer: from(i), Config: config(protocol)}
				keep(d.DialContext(dialing, "tcp", f.at(scheme)))
			}
		})
	}
	for scheme, protocol := range map[string]string{"quic": "doq", "https3": "h3"} {
		tasks.Go(func() {
			for i := 0; i < 90 && dialing.Err() == nil; i++ { // a client may have a hundred
				one, cancel := context.WithTimeout(dialing, time.Second)
				c, err := quic.DialAddr(one, f.at(scheme), config(protocol), nil)
				cancel()
				if err == nil {
					context.AfterFunc(ctx, func() { _ = c.CloseWithError(0, "") })
				}
			}
		})
	}
}

// query sends queries over TCP until ctx ends: for large answers, which are cached, or, without
// reading them, for answers that wait; and over UDP for names that are never answered.
func (f *fill) query(ctx context.Context, tasks *sync.WaitGroup) {
	packet := func(i int, name string) []byte {
		m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
		m.Id = uint16(i)
		packet, _ := m.Pack()
		return packet
	}

	for client := range 150 {
		tasks.Go(func() {
			conn, err := from(client).DialContext(ctx, "tcp", f.at("dns"))
			if err != nil {
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			for i := range 10 {
				q := packet(i, fmt.Sprintf("n%d-%d.large.example.", client, i))
				if _, err := conn.Write(append([]byte{byte(len(q) >> 8), byte(len(q))}, q...)); err != nil {
					return
				}
				if client%2 == 0 { // the others do not read
					length := make([]byte, 2)
					if _, err := io.ReadFull(conn, length); err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, conn, int64(length[0])<<8|int64(length[1])); err != nil {
						return
					}
				}
			}
			<-ctx.Done()
		})
	}

	tasks.Go(func() {
		conn, err := net.Dial("udp", f.at("dns"))
		if err != nil {
			return
		}
		defer conn.Close()
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = conn.Write(packet(i, fmt.Sprintf("n%d.silent.example.", i)))
			time.Sleep(500 * time.Microsecond)
		}
	})
}

// own asks for names of the cluster until ctx ends, and returns how long each answer took, and how
// many queries had none.
func (f *fill) own(ctx context.Context) (took []time.Duration, lost int) {
	c := &dns.Client{Timeout: 2 * time.Second}
	for i := 0; ctx.Err() == nil; i++ {
		n := i * 7919 % 10_000
		name := fmt.Sprintf("svc%d.ns%d.svc.cluster.local.", n, n%50)
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		m.SetEdns0(1232, false)
		reply, d, err := c.Exchange(m, f.at("dns"))
		switch {
		case err != nil:
			lost++
		case reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0:
			f.Errorf("%s: got %s, want addresses", name, reply)
			return took, lost
		default:
			took = append(took, d)
		}
		time.Sleep(time.Millisecond)
	}
	return took, lost
}

// survived fails unless the group had no kill, and own names were answered. It logs detail, and returns the
// 99th percentile of the answers.
func survived(t *testing.T, g *memorygroup.Group, took []time.Duration, lost int, detail string) time.Duration {
	t.Helper()
	if n := g.Kills(); n > 0 {
		t.Fatalf("the kernel killed %d processes: %s", n, g)
	}
	if len(took) == 0 {
		t.Fatalf("none of %d queries was answered: %s", lost, g)
	}

	slices.Sort(took)
	slowest := took[len(took)*99/100]
	t.Logf("%s; %d answers, %d queries without one, p50 %v, p99 %v; %s", g, len(took), lost, took[len(took)/2], slowest, detail)
	return slowest
}

// refused returns how often there was no more memory for each part, and after how many collections
// memory was tight.
func (f *fill) refused() map[string]int {
	f.Helper()
	text := metricsText(f.T, f.pages)

	found := map[string]int{}
	if m := regexp.MustCompile(`(?m)^seamark_memory_tight_total (\d+)$`).FindStringSubmatch(text); m != nil {
		found["tight"], _ = strconv.Atoi(m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^seamark_memory_refused_total\{part="(\w+)"\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		found[m[1]], _ = strconv.Atoi(m[2])
	}
	return found
}

// Every part of the memory is filled at the same time, beside a cluster of 10,000 Services with
// 150,000 endpoints: the kernel kills no process, the server does not restart, and answers from its
// own data.
func TestMemoryEveryPartFull(t *testing.T) {
	long(t)
	bound.Only(t) // the collector needs processors to keep the heap within its limit
	binary := buildServer(t)
	for _, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			f, g := newFill(t), memorygroup.New(t, limit)
			f.primary.set(1, 100<<10, false)
			c := exec.CommandContext(t.Context(), binary, "-conf", "Corefile")
			c.Dir = f.dir
			g.Add(c)
			p := start(t, c, os.Stderr, "")
			chaintest.Eventually(t, "the transferred zone", func() bool {
				reply, err := ask("udp", f.ports["dns"], "big.example.", dns.TypeSOA)
				return err == nil && len(reply.Answer) == 1
			})
			t.Logf("with the cluster alone: %s", g)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var tasks sync.WaitGroup
			f.files(300_000)
			f.primary.set(2, 117<<20, false)
			f.query(ctx, &tasks)
			filling, filled := context.WithTimeout(ctx, 12*time.Second)
			f.connect(filling, ctx, &tasks)
			f.own(filling)
			filled()

			// All is full now, and stays so.
			if n := g.Kills(); n > 0 {
				t.Fatalf("the kernel killed %d processes: %s", n, g)
			}
			refused := f.refused()
			measuring, measured := context.WithTimeout(ctx, 5*time.Second)
			took, lost := f.own(measuring)
			measured()
			cancel()
			tasks.Wait()

			slowest := survived(t, g, took, lost, fmt.Sprint("refused ", refused))
			bound.AtMost(t, "the 99th percentile of the answers", slowest, 20*time.Millisecond)
			for _, part := range []memory.Consumer{memory.Cache, memory.Transfers, memory.Zones, memory.Files, memory.QUIC, memory.TLS} {
				if part == memory.Cache && refused["tight"] > 0 {
					continue // large answers do not take the place of others then
				}
				if refused[part.String()] == 0 && (limit == 64<<20 || part < memory.TCP || part > memory.QUIC) {
					t.Errorf("%s was not filled, refused were %v", part, refused)
				}
			}

			for _, name := range []string{"svc1.ns1.svc.cluster.local.", "h1.hosts.example."} {
				if reply, err := ask("udp", f.ports["dns"], name, dns.TypeA); err != nil || len(reply.Answer) != 1 {
					t.Errorf("%s A afterwards: got %v, error %v, want an address", name, reply, err)
				}
			}
			p.stop()
		})
	}
}
