//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

const (
	domain      = "cluster.local"
	ttl         = 30
	perHeadless = 60
	perSmall    = 3
	perMoving   = 10
	movers      = 20
)

// A population is a generated cluster: its Services in a fixed order, with
// consecutive addresses, so that the answer follows from the name.
type population struct {
	namespaces int
	plain      int // Services with a ClusterIP
	perService int // endpoints of each of these
	headless   int // headless Services of 60 endpoints
	small      int // headless Services of 3
	moving     int // headless Services of 10 whose endpoints are changed
}

// populate returns a cluster of about that many Services: nine of ten have a
// ClusterIP and ten endpoints, the others are headless and have sixty. 10,000
// Services have 150,000 endpoints in 50 namespaces, and a few more in small and
// moving Services.
func populate(services int) population {
	return population{
		namespaces: min(50, max(2, services/20)),
		plain:      services * 9 / 10,
		perService: 10,
		headless:   services / 10,
		small:      max(4, services/200),
		moving:     movers,
	}
}

// A service is a Service with its endpoints, all on port 8080, and its port 80
// named http.
type service struct {
	name, namespace string
	ip              netip.Addr // invalid for headless Services
	endpoints       []netip.Addr
}

func (s service) fqdn() string { return s.name + "." + s.namespace + ".svc." + domain + "." }

func (s service) srv() string { return "_http._tcp." + s.fqdn() }

// endpoint returns the name of an endpoint.
func (s service) endpoint(ip netip.Addr) string {
	return strings.ReplaceAll(ip.String(), ".", "-") + "." + s.fqdn()
}

func (p population) services() int { return p.plain + p.headless + p.small + p.moving }

func (p population) endpoints() int {
	return p.plain*p.perService + p.headless*perHeadless + p.small*perSmall + p.moving*perMoving
}

// firstHeadless and the others return the number of the first Service of a kind:
// plain, headless, small, moving.
func (p population) firstHeadless() int { return p.plain }
func (p population) firstSmall() int    { return p.plain + p.headless }
func (p population) firstMoving() int   { return p.plain + p.headless + p.small }

// service returns the Service with a number below services().
func (p population) service(i int) service {
	s := service{namespace: p.namespace(i)}
	var first, n int
	switch {
	case i < p.plain:
		s.name, s.ip = fmt.Sprintf("svc-%d", i), address(10, 96, 64, i)
		first, n = i*p.perService, p.perService
	case i < p.firstSmall():
		k := i - p.firstHeadless()
		s.name = fmt.Sprintf("headless-%d", k)
		first, n = p.plain*p.perService+k*perHeadless, perHeadless
	case i < p.firstMoving():
		k := i - p.firstSmall()
		s.name = fmt.Sprintf("small-%d", k)
		first, n = p.plain*p.perService+p.headless*perHeadless+k*perSmall, perSmall
	default:
		k := i - p.firstMoving()
		s.name, s.namespace = fmt.Sprintf("moving-%d", k), p.namespace(0)
		first, n = p.endpoints()-(p.moving-k)*perMoving, perMoving
	}

	s.endpoints = make([]netip.Addr, n)
	for j := range s.endpoints {
		s.endpoints[j] = address(10, 128, 0, first+j+1)
	}
	return s
}

func (p population) namespace(i int) string { return fmt.Sprintf("ns-%d", i%p.namespaces) }

// address returns the n-th address from a.b.c.0.
func address(a, b, c byte, n int) netip.Addr {
	v := uint32(a)<<24 | uint32(b)<<16 | uint32(c)<<8
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// reverse returns the owner name of the address's PTR record.
func reverse(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
}

// A record is a resource record in the text form of a zone file.
type record struct{ owner, kind, data string }

// records returns all records of a Service, records of endpoint names before
// records of the Service's name: dnsmasq makes the PTR record of the first name
// that it reads.
func (s service) records() (rs []record) {
	if s.ip.IsValid() {
		rs = append(rs, record{s.fqdn(), "A", s.ip.String()},
			record{s.srv(), "SRV", "0 100 80 " + s.fqdn()},
			record{reverse(s.ip), "PTR", s.fqdn()})
	}
	for _, ip := range s.endpoints {
		rs = append(rs, record{s.endpoint(ip), "A", ip.String()}, record{reverse(ip), "PTR", s.endpoint(ip)})
		if !s.ip.IsValid() {
			rs = append(rs, record{s.fqdn(), "A", ip.String()},
				record{s.srv(), "SRV", fmt.Sprintf("0 %d 8080 %s", 100/len(s.endpoints), s.endpoint(ip))})
		}
	}
	return rs
}

// soa is the data of every zone's SOA record, as long as Kubernetes' own.
const soa = "ns.dns.cluster.local. hostmaster.cluster.local. 1700000000 7200 1800 86400 30"

// The zones of the population.
const (
	forwardZone = domain + "."
	reverseZone = "10.in-addr.arpa."
)

// each visits every record of the population, the zone apexes first.
func (p population) each(visit func(record)) {
	for _, origin := range []string{forwardZone, reverseZone} {
		visit(record{origin, "SOA", soa})
		visit(record{origin, "NS", "ns.dns.cluster.local."})
	}
	visit(record{"ns.dns.cluster.local.", "A", "10.96.0.10"})
	for i := range p.services() {
		for _, r := range p.service(i).records() {
			visit(r)
		}
	}
}

// writeFile creates a file with the output of fill.
func writeFile(name string, fill func(io.Writer)) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	fill(w)
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// writeZones writes cluster.zone and reverse.zone.
func (p population) writeZones(dir string) error {
	for name, origin := range map[string]string{"cluster.zone": forwardZone, "reverse.zone": reverseZone} {
		err := writeFile(filepath.Join(dir, name), func(w io.Writer) {
			p.each(func(r record) {
				if strings.HasSuffix(r.owner, origin) {
					fmt.Fprintf(w, "%s %d IN %s %s\n", r.owner, ttl, r.kind, r.data)
				}
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeHosts writes the addresses as a hosts file.
func (p population) writeHosts(name string) error {
	return writeFile(name, func(w io.Writer) {
		p.each(func(r record) {
			if r.kind == "A" {
				fmt.Fprintf(w, "%s %s\n", r.data, strings.TrimSuffix(r.owner, "."))
			}
		})
	})
}

// writeManifests writes the cluster as YAML, one file for each namespace.
func (p population) writeManifests(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for n := range p.namespaces {
		err := writeFile(filepath.Join(dir, p.namespace(n)+".yaml"), func(w io.Writer) {
			fmt.Fprintf(w, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n    seamark-bench: \"true\"\n", p.namespace(n))
			for i := range p.services() {
				if s := p.service(i); s.namespace == p.namespace(n) {
					s.writeService(w)
					s.writeSlice(w)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s service) writeService(w io.Writer) {
	ip := "None"
	if s.ip.IsValid() {
		ip = s.ip.String()
	}
	fmt.Fprintf(w, `---
apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: %s
  labels:
    app: %s
spec:
  type: ClusterIP
  clusterIP: %s
  clusterIPs: [%s]
  ports:
  - name: http
    protocol: TCP
    port: 80
    targetPort: 8080
`, s.name, s.namespace, s.name, ip, ip)
}

// writeSlice writes an EndpointSlice as Kubernetes' controllers do: each endpoint
// has a node and a pod.
func (s service) writeSlice(w io.Writer) {
	fmt.Fprintf(w, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  namespace: %s
  labels:
    kubernetes.io/service-name: %s
    endpointslice.kubernetes.io/managed-by: bench
addressType: IPv4
ports:
- name: http
  protocol: TCP
  port: 8080
endpoints:
`, s.slice(), s.namespace, s.name)

	for i, ip := range s.endpoints {
		fmt.Fprintf(w, `- addresses: [%s]
  conditions: {ready: true, serving: true, terminating: false}
  nodeName: node-%d
  targetRef: {kind: Pod, namespace: %s, name: %s-5d4f8b7c9-%05d}
`, ip, i%200, s.namespace, s.name, i)
	}
}

func (s service) slice() string { return s.name + "-x7k2p" }
