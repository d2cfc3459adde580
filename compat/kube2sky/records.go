package kube2sky

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/order"
)

// A record is a path and its value. The path is the key without the prefix:
// local/cluster/svc/default/kubernetes/f488b1a2.
type record struct{ path, value string }

// A message is a SkyDNS message. The order and the omission of fields are part of
// the contract: the label of an address is a hash of these bytes.
type message struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port,omitempty"`
	Priority int    `json:"priority"`
	Weight   int    `json:"weight"`
	TTL      int    `json:"ttl"`
}

// newMessage returns a message with the fixed priority, weight and TTL of the
// original kube2sky.
func newMessage(host string, port uint16) string {
	text, err := json.Marshal(message{host, port, 10, 10, 30})
	if err != nil {
		panic(err) // not possible for these types
	}
	return string(text)
}

// sum returns the FNV-1a hash of a value in hexadecimal digits without leading
// zeros.
func sum(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// A zone is the cluster's domain, as a name and as a prefix of paths.
type zone struct {
	domain string // cluster.local.
	path   string // local/cluster/
}

func newZone(domain string) zone {
	name := strings.ToLower(strings.TrimSuffix(domain, "."))
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return zone{name + ".", strings.Join(labels, "/") + "/"}
}

// service returns the records of a Service, sorted by path; none if svc is nil.
func (z zone) service(svc *cluster.Service, endpoints []*cluster.Slice) []record {
	if svc == nil {
		return nil
	}
	s := serviceRecords{
		path: z.path + "svc/" + svc.Namespace + "/" + svc.Name + "/",
		name: svc.Name + "." + svc.Namespace + ".svc." + z.domain,
	}

	switch {
	case svc.ExternalName != "":
		if api.IsTarget(svc.ExternalName) {
			value := newMessage(svc.ExternalName+".", 0)
			s.add(sum(value), value)
		}
	case svc.Headless:
		for _, slice := range endpoints {
			for e := range slice.Endpoints.All() {
				if hasRecords(svc, &e) {
					s.endpoint(&e, slice.Ports)
				}
			}
		}
	default:
		s.clusterIPs(svc)
	}
	return s.finish()
}

// hasRecords reports whether an endpoint of a Service has records.
func hasRecords(svc *cluster.Service, e *cluster.Endpoint) bool {
	return svc.Headless && (e.Ready || svc.PublishNotReady)
}

// serviceRecords collects the records of one Service.
type serviceRecords struct {
	path, name string
	all        []record
}

func (s *serviceRecords) add(path, value string) {
	s.all = append(s.all, record{s.path + path, value})
}

// clusterIPs adds the addresses and ports of a Service. A dual-stack Service has
// one SRV record for each port: readers divide the weight among all SRV records.
func (s *serviceRecords) clusterIPs(svc *cluster.Service) {
	for i, ip := range svc.ClusterIPs {
		label := s.address("", ip)
		if i > 0 {
			continue
		}
		for _, p := range svc.Ports {
			s.port(p, label, s.name)
		}
	}
}

func (s *serviceRecords) endpoint(e *cluster.Endpoint, ports []cluster.Port) {
	label := s.address(e.Hostname, e.Addr)
	for _, p := range ports {
		s.port(p, label, label+"."+s.name)
	}
}

// address adds an address, and returns its label: label, or by default
// the hash of its value.
func (s *serviceRecords) address(label string, ip netip.Addr) string {
	value := newMessage(ip.String(), 0)
	if label == "" {
		label = sum(value)
	}
	s.add(label, value)
	return label
}

// port adds an SRV record. It skips ports without a name, and ports whose name is
// too long for a label: the API allows 63 bytes in an EndpointSlice.
func (s *serviceRecords) port(p cluster.Port, label, target string) {
	if p.Name != "" && len(p.Name) < maxLabel && !strings.ContainsAny(p.Name, "/.") {
		s.add("_"+p.Protocol+"/_"+p.Name+"/"+label, newMessage(target, p.Port))
	}
}

// finish sorts the records and removes duplicates. Several values at one path,
// such as the IPv4 and the IPv6 address of a hostname, each get a path of their
// own below it, which readers look up as well.
func (s *serviceRecords) finish() []record {
	byPath := func(a, b record) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.value, b.value))
	}
	order.Slice(s.all, byPath)
	all := slices.Compact(s.all)

	moved := false
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n].path == all[i].path {
			n++
		}
		if n > i+1 {
			for j := i; j < n; j++ {
				all[j].path += "/" + sum(all[j].value)
			}
			moved = true
		}
		i = n
	}
	if moved { // a sibling such as web-0- may sort between them
		order.Slice(all, byPath)
	}
	return all
}

// pod returns the record of a pod's address.
func (z zone) pod(namespace string, ip netip.Addr) record {
	value := newMessage(ip.String(), 0)
	return record{z.path + "pod/" + namespace + "/" + dashed(ip) + "/" + sum(value), value}
}

// dashed returns an address as a label.
func dashed(ip netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// reverse returns the record of an address's reverse name. Its target is a
// Service or, with a label, an endpoint. There is only one, because readers do
// not look below this key.
func (z zone) reverse(ip netip.Addr, svc cluster.Key, label string) record {
	name := svc.Name + "." + svc.Namespace + ".svc." + z.domain
	if label != "" {
		name = label + "." + name
	}
	return record{reversePath(ip), newMessage(name, 0)}
}

const (
	reverse4 = "arpa/in-addr/"
	reverse6 = "arpa/ip6/"
)

func reversePath(ip netip.Addr) string {
	if ip.Is4() {
		return reverse4 + strings.ReplaceAll(ip.String(), ".", "/")
	}
	digits := hex.EncodeToString(ip.AsSlice())
	return reverse6 + strings.Join(strings.Split(digits, ""), "/")
}

const maxLabel = 63

// isName reports whether a name can be a cluster's domain.
func isName(name string) bool {
	return api.IsTarget(strings.ToLower(name)) && !strings.ContainsAny(name, "_")
}
