package transfer_test

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/zone"
)

// An objectZone is a zone example.org that a directive makes from objects.
type objectZone struct {
	directives string // $DIR is the directory with the manifests
	objects    string
	old, new   string // the text in objects that changes
	// records are those of the first version; $SERIAL is its serial number. The second version has added in
	// place of removed.
	records, removed, added []string
}

var objectZones = map[string]objectZone{
	"k8s_external": {
		directives: "kubernetes cluster.local {\n manifests $DIR\n}\n k8s_external example.org {\n apex ns\n}",
		objects: `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: inside, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
`,
		old: "192.0.2.1", new: "192.0.2.2",
		records: []string{
			"example.org. 5 in soa ns1.ns.example.org. hostmaster.example.org. $SERIAL 7200 1800 86400 5",
			"example.org. 5 in ns ns1.ns.example.org.",
			"ns1.ns.example.org. 5 in a 127.0.0.1",
			"web.shop.example.org. 5 in a 192.0.2.1",
			"web.shop.example.org. 5 in srv 0 100 80 web.shop.example.org.",
			"_http._tcp.web.shop.example.org. 5 in a 192.0.2.1",
			"_http._tcp.web.shop.example.org. 5 in srv 0 100 80 web.shop.example.org.",
		},
		removed: []string{"web.shop.example.org. 5 in a 192.0.2.1", "_http._tcp.web.shop.example.org. 5 in a 192.0.2.1"},
		added:   []string{"web.shop.example.org. 5 in a 192.0.2.2", "_http._tcp.web.shop.example.org. 5 in a 192.0.2.2"},
	},
	"gateway": {
		directives: "gateway example.org {\n external\n manifests $DIR\n}",
		objects: `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop}
spec: {rules: [{host: www.example.org}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
`,
		old: "www.example.org", new: "new.example.org",
		records: []string{
			"example.org. 60 in soa ns1.dns.example.org. hostmaster.example.org. $SERIAL 7200 1800 86400 60",
			"example.org. 60 in ns ns1.dns.example.org.",
			"ns1.dns.example.org. 60 in a 127.0.0.1",
			"www.example.org. 60 in a 192.0.2.1",
		},
		removed: []string{"www.example.org. 60 in a 192.0.2.1"},
		added:   []string{"new.example.org. 60 in a 192.0.2.1"},
	},
}

// The zones of k8s_external and gateway are transferred. A change has a greater serial number, of which
// other servers are notified, and IXFR has the records that differ.
func TestObjectZones(t *testing.T) {
	for name, z := range objectZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, at := t.TempDir(), freePort(t)
			write(t, filepath.Join(dir, "a.yaml"), z.objects)
			listener, serials := acceptNotify(t)
			run(t, at, fmt.Sprintf("example.org cluster.local {\n %s\n transfer example.org {\n to 127.0.0.1 %s\n}\n}",
				strings.ReplaceAll(z.directives, "$DIR", dir), listener))

			first := awaitNotify(t, serials, at, 0)
			z.compareWhole(t, at.String(), first, z.records)

			write(t, filepath.Join(dir, "a.yaml"), strings.ReplaceAll(z.objects, z.old, z.new))
			second := awaitNotify(t, serials, at, first)
			if !zone.SerialLess(first, second) {
				t.Errorf("got serial number %d after %d", second, first)
			}

			difference := slices.Concat([]string{z.soa(second), z.soa(first)}, z.removed, []string{z.soa(second)}, z.added, []string{z.soa(second)})
			got := exchangeTransfer(t, at.String(), new(mdns.Msg).SetIxfr("example.org.", first, "ns.", "host."))
			if !slices.Equal(sortBetween(got, "soa"), sortBetween(difference, "soa")) {
				t.Errorf("IXFR: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(difference, "\n"))
			}
			isRemoved := func(record string) bool { return slices.Contains(z.removed, record) }
			z.compareWhole(t, at.String(), second, append(slices.DeleteFunc(slices.Clone(z.records), isRemoved), z.added...))
		})
	}
}

// soa returns the SOA record of a version.
func (z *objectZone) soa(serial uint32) string {
	return strings.ReplaceAll(z.records[0], "$SERIAL", fmt.Sprint(serial))
}

// compareWhole compares the answer to AXFR.
func (z *objectZone) compareWhole(t *testing.T, at string, serial uint32, records []string) {
	t.Helper()
	want := slices.Concat([]string{z.soa(serial)}, records[1:], []string{z.soa(serial)})
	got := exchangeTransfer(t, at, new(mdns.Msg).SetAxfr("example.org."))
	if !slices.Equal(sortBetween(got, "soa"), sortBetween(want, "soa")) {
		t.Errorf("AXFR: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sortBetween returns the records with those between two records of a type sorted.
func sortBetween(records []string, kind string) []string {
	records = slices.Clone(records)
	from := 0
	for i, r := range records {
		if strings.Contains(r, " in "+kind+" ") {
			slices.Sort(records[from:i])
			from = i + 1
		}
	}
	return records
}

// exchangeTransfer returns the records of a transfer in their order, as text.
func exchangeTransfer(t *testing.T, at string, m *mdns.Msg) (records []string) {
	t.Helper()
	r, _, err := (&mdns.Client{Net: "tcp", Timeout: patience}).Exchange(m, at)
	if err != nil || r.Rcode != mdns.RcodeSuccess || !r.Authoritative {
		t.Fatalf("%s: got %v, %v", m.Question[0].String(), r, err)
	}
	for _, rr := range r.Answer {
		records = append(records, strings.ToLower(strings.ReplaceAll(rr.String(), "\t", " ")))
	}
	return records
}

// acceptNotify starts a server that accepts NOTIFY messages for example.org, and returns its address and the
// serial numbers in them.
func acceptNotify(t *testing.T) (address string, serials <-chan uint32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	all := make(chan uint32, 100)
	s := &mdns.Server{
		PacketConn:    conn,
		MsgAcceptFunc: func(mdns.Header) mdns.MsgAcceptAction { return mdns.MsgAccept },
		Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, m *mdns.Msg) {
			if m.Opcode == mdns.OpcodeNotify && m.Question[0].Name == "example.org." && len(m.Answer) == 1 {
				all <- m.Answer[0].(*mdns.SOA).Serial
			}
			_ = w.WriteMsg(new(mdns.Msg).SetReply(m))
		}),
	}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return conn.LocalAddr().String(), all
}

// awaitNotify waits for a NOTIFY message with the present serial number of a server, which is not the last one.
func awaitNotify(t *testing.T, serials <-chan uint32, at netip.AddrPort, last uint32) uint32 {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case serial := <-serials:
			if serial != last && serial == soa(at, "example.org.") {
				return serial
			}
		case <-timeout:
			t.Fatalf("no NOTIFY message arrived with another serial number than %d that is the server's", last)
		}
	}
}
