package transfer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/race"
)

// clusterZones are the zones of a test's cluster.
var clusterZones = []string{"cluster.local", "10.in-addr.arpa"}

// A manifestCluster is a folder of manifests that change.
type manifestCluster struct {
	*rand.Rand
	dir string
}

func newManifestCluster(t testing.TB, services int) *manifestCluster {
	c := &manifestCluster{rand.New(rand.NewPCG(7, 7)), t.TempDir()}
	write(t, filepath.Join(c.dir, "namespace.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	for i := range services {
		c.change(t, i)
	}
	return c
}

// change writes another random version of a Service and its endpoints.
func (c *manifestCluster) change(t testing.TB, service int) {
	name := fmt.Sprintf("s%d", service)
	path := filepath.Join(c.dir, name+".yaml")
	spec := fmt.Sprintf("clusterIP: 10.96.%d.%d", c.IntN(4), c.IntN(250))
	switch c.IntN(8) {
	case 0:
		_ = os.Remove(path)
		return
	case 1:
		write(t, path, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {type: ExternalName, externalName: www%d.example.com}\n", name, c.IntN(9)))
		return
	case 2, 3, 4:
		spec = "clusterIP: None"
	}
	ports := "ports: [{name: http, port: 80}, {name: dns, protocol: UDP, port: 53}, {port: 9090}]"
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {%s, %s}\n---\n", name, spec, ports)
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: shop, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\n%s\nendpoints:\n", name, name, ports)
	for i := range c.IntN(6) {
		host := ""
		if c.IntN(2) == 0 {
			host = fmt.Sprintf(", hostname: h%d", i)
		}
		fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d]%s, conditions: {ready: %v}}\n", c.IntN(2), c.IntN(4), i, host, c.IntN(4) > 0)
	}
	write(t, path, b.String())
}

// corefile returns a primary's Corefile.
func (c *manifestCluster) corefile(to ...netip.AddrPort) string {
	zones := strings.Join(clusterZones, " ")
	return fmt.Sprintf("%s {\n kubernetes %s {\n manifests %s\n}\n transfer {\n to 127.0.0.1 %s\n}\n}", zones, zones, c.dir, strings.Trim(fmt.Sprint(to), "[]"))
}

// Knot, NSD, BIND and Seamark follow a cluster's zones by differences.
func TestClusterFollowers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const services, batch = 60, 250
	changes := race.Fewer(10_000)
	c := newManifestCluster(t, services)
	primary := freePort(t)
	followers := map[string]netip.AddrPort{"seamark": freePort(t)}
	for name := range daemons {
		followers[name] = freePort(t)
	}
	var to []netip.AddrPort
	for _, at := range followers {
		to = append(to, at)
	}
	log := run(t, primary, c.corefile(to...))
	// BIND does not repeat a failed first transfer for a minute, and ignores a NOTIFY message
	// that arrives during one.
	eventually(t, func() string {
		if soa(primary, clusterZones[0]+".") == 0 {
			return "the primary does not answer"
		}
		return ""
	})
	for name, d := range daemons {
		d.follow(t, followers[name], primary, nil, clusterZones...)
	}
	run(t, followers["seamark"], fmt.Sprintf("%s {\n secondary {\n transfer from %s\n}\n transfer {\n to *\n}\n}", strings.Join(clusterZones, " "), primary))
	await := func(zone string) {
		t.Helper()
		for name, at := range followers {
			eventually(t, func() string {
				if got, want := soa(at, zone), soa(primary, zone); got != want || got == 0 {
					return fmt.Sprintf("%s has %s with serial %d, want %d", name, zone, got, want)
				}
				return ""
			})
		}
	}
	for _, zone := range clusterZones {
		await(zone + ".")
	}
	for range changes / batch {
		before := soa(primary, "cluster.local.")
		for range batch {
			c.change(t, c.IntN(services))
		}
		eventually(t, func() string {
			if soa(primary, "cluster.local.") == before {
				return "no new serial number after changes"
			}
			return ""
		})
	}
	for _, zone := range clusterZones {
		await(zone + ".")
	}
	// NSD transfers a whole zone when it receives differences faster than it applies them.
	if n, most := countKind(log, "AXFR"), len(followers)*len(clusterZones)+changes/batch; n > most {
		t.Errorf("got %d transfers of whole zones, want at most %d", n, most)
	}
	if n, want := countKind(log, "IXFR"), 2*len(clusterZones)*changes/batch; n < want {
		t.Errorf("got %d transfers of differences, want at least %d", n, want)
	}
	for _, zone := range clusterZones {
		for name, at := range followers {
			eventually(t, func() string {
				if why := same(primary, at, zone+"."); why != "" {
					return name + ": " + why
				}
				return ""
			})
		}
	}
	c.compareAnswers(t, primary, followers["seamark"])
}

// compareAnswers compares the answers of a primary and of its copy, for each name and
// names near it.
func (c *manifestCluster) compareAnswers(t *testing.T, primary, copied netip.AddrPort) {
	t.Helper()
	client := &mdns.Client{Net: "tcp", Timeout: patience}
	var conns [2]*mdns.Conn
	for i, at := range []netip.AddrPort{primary, copied} {
		conn, err := client.Dial(at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	for _, zone := range clusterZones {
		records, err := axfr(primary, zone+".")
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, r := range records {
			name, _, _ := strings.Cut(r, " ")
			names["missing."+name] = true
			for ; name != zone+"."; _, name, _ = strings.Cut(name, ".") { // empty non-terminals, too
				names[name] = true
			}
			names[name] = true
		}
		for name := range names {
			for _, qtype := range []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeSRV, mdns.TypePTR, mdns.TypeTXT, mdns.TypeCNAME, mdns.TypeNS, mdns.TypeSOA, mdns.TypeMX} {
				var replies [2]string
				for i, conn := range conns {
					r, _, err := client.ExchangeWithConn(new(mdns.Msg).SetQuestion(name, qtype), conn)
					if err != nil {
						t.Fatal(err)
					}
					replies[i] = replyText(r)
				}
				if replies[0] != replies[1] {
					t.Fatalf("%s %s\nprimary: %s\ncopy: %s", name, mdns.TypeToString[qtype], replies[0], replies[1])
				}
			}
		}
	}
}

// replyText returns a reply with the records of each section sorted.
func replyText(r *mdns.Msg) string {
	text := fmt.Sprintf("%s AA=%v AD=%v RA=%v TC=%v\n", mdns.RcodeToString[r.Rcode], r.Authoritative, r.AuthenticatedData, r.RecursionAvailable, r.Truncated)
	for _, section := range [][]mdns.RR{r.Answer, r.Ns, r.Extra} {
		var lines []string
		for _, rr := range section {
			lines = append(lines, rr.String())
		}
		slices.Sort(lines)
		text += "--\n" + strings.Join(lines, "\n")
	}
	return text
}

// A reload keeps the differences. A reload with another TTL, and a restart, make a version
// with a higher serial number, which copies transfer as a whole.
func TestClusterReload(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	c := newManifestCluster(t, 10)
	primary, copied := freePort(t), freePort(t)
	text := c.corefile(copied)
	plan, log := serve(t, primary, nil, text)
	defer func() { plan.Stop(t.Context()) }()
	run(t, copied, fmt.Sprintf("cluster.local {\n secondary {\n transfer from %s\n}\n transfer {\n to *\n}\n}", primary))
	change := func() {
		t.Helper()
		write(t, filepath.Join(c.dir, "extra.yaml"), fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: x%d, namespace: shop}\nspec: {clusterIP: 10.96.9.9}\n", c.IntN(1e9)))
	}
	await := func(kind string, n int) {
		t.Helper()
		eventually(t, func() string {
			if got := countKind(log, kind); got < n {
				return fmt.Sprintf("%d transfers of kind %s, want %d", got, kind, n)
			}
			if x, y := soa(primary, "cluster.local."), soa(copied, "cluster.local."); x != y || x == 0 {
				return fmt.Sprintf("serial %d and %d", x, y)
			}
			return same(primary, copied, "cluster.local.")
		})
	}
	await("AXFR", 1)
	replace := func(text string) {
		t.Helper()
		plan, log = serve(t, primary, plan, text)
	}
	before := soa(primary, "cluster.local.")
	replace(text + "\n. {\n whoami\n}")
	if got := soa(primary, "cluster.local."); got != before {
		t.Errorf("after a reload: got serial %d, want %d", got, before)
	}
	change()
	await("IXFR", 1)
	before = soa(primary, "cluster.local.")
	replace(strings.Replace(text, "manifests", "ttl 7\n manifests", 1))
	await("AXFR", 1)
	if got := soa(primary, "cluster.local."); int32(got-before) <= 0 {
		t.Errorf("after a reload with another TTL: got serial %d, want more than %d", got, before)
	}
	before = soa(primary, "cluster.local.")
	for start := time.Now(); time.Since(start) < time.Second/64; time.Sleep(time.Millisecond) {
		// A process takes longer than the unit of serial numbers to start.
	}
	plan.Stop(t.Context())
	plan, log = serve(t, primary, nil, text)
	await("AXFR", 1)
	if got := soa(primary, "cluster.local."); int32(got-before) <= 0 {
		t.Errorf("after a restart: got serial %d, want more than %d", got, before)
	}
}
