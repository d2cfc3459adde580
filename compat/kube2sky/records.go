package kube2sky

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A record is a key and its value. The path is the key without what stands before
// SkyDNS's tree: local/cluster/svc/default/kubernetes/f488b1a2.
type record struct{ path, value string }

// A message is SkyDNS's, as far as it is written here. The order of the fields and
// what is left out are part of the contract: the label of an address is a hash of
// these bytes.
type message struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port,omitempty"`
	Priority int    `json:"priority"`
	Weight   int    `json:"weight"`
	TTL      int    `json:"ttl"`
}

// newMessage has the numbers of the original: nobody could set them there.
func newMessage(host string, port uint16) string {
	text, err := json.Marshal(message{host, port, 10, 10, 30})
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return string(text)
}

// sum is the hash of a value, in hexadecimal digits without zeros in front.
func sum(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// A zone is the cluster's domain, as a name and as the beginning of a path.
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

// service gives the records of a Service, sorted by path. svc may be nil: then
// there are none.
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
		if isTarget(svc.ExternalName) {
			value := newMessage(svc.ExternalName+".", 0)
			s.add(sum(value), value)
		}
	case svc.Headless:
		for _, slice := range endpoints {
			for e := range slice.Endpoints.All() {
				if counts(svc, &e) {
					s.endpoint(&e, slice.Ports)
				}
			}
		}
	default:
		s.own(svc)
	}
	return s.settle()
}

// counts says whether an endpoint of a headless Service has a name.
func counts(svc *cluster.Service, e *cluster.Endpoint) bool {
	return svc.Headless && (e.Ready || svc.PublishNotReady)
}

// serviceRecords gathers the records of one Service.
type serviceRecords struct {
	path, name string
	all        []record
}

func (s *serviceRecords) add(path, value string) {
	s.all = append(s.all, record{s.path + path, value})
}

// own adds a Service's own addresses and ports. With two addresses there is one SRV
// record for a port all the same: readers share its weight out among all that there
// are.
func (s *serviceRecords) own(svc *cluster.Service) {
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

// address adds an address, and gives the label under which it stands: the given
// one, or the hash of its value.
func (s *serviceRecords) address(label string, ip netip.Addr) string {
	value := newMessage(ip.String(), 0)
	if label == "" {
		label = sum(value)
	}
	s.add(label, value)
	return label
}

// port adds an SRV record. Ports without a name have none, and neither do those
// whose name cannot be a label: an EndpointSlice's may have 63 bytes.
func (s *serviceRecords) port(p cluster.Port, label, target string) {
	if p.Name != "" && len(p.Name) < maxLabel && !strings.ContainsAny(p.Name, "/.") {
		s.add("_"+p.Protocol+"/_"+p.Name+"/"+label, newMessage(target, p.Port))
	}
}

// settle sorts the records and takes out what is said twice. Where several values
// stand at one path, as with a hostname that has an IPv4 and an IPv6 address, each
// gets a path of its own below it, which readers look at as well.
func (s *serviceRecords) settle() []record {
	order := func(a, b record) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.value, b.value))
	}
	slices.SortFunc(s.all, order)
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
	if moved { // a sibling such as web-0- may have its place between
		slices.SortFunc(all, order)
	}
	return all
}

// pod gives the record of a pod's address.
func (z zone) pod(namespace string, ip netip.Addr) record {
	value := newMessage(ip.String(), 0)
	return record{z.path + "pod/" + namespace + "/" + dashed(ip) + "/" + sum(value), value}
}

// dashed is an address as a label.
func dashed(ip netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// reverse gives the record of an address's name: that of a Service, or that of an
// endpoint of it, which has a label. Readers look at this one key, and at none below
// it: there can be only one name.
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
	const hex = "0123456789abcdef"
	path := []byte(reverse6)
	for _, b := range ip.As16() {
		path = append(path, hex[b>>4], '/', hex[b&15], '/')
	}
	return string(path[:len(path)-1])
}

const (
	maxLabel = 63
	maxName  = 253
)

// isName says whether a name can be a cluster's domain.
func isName(name string) bool {
	return isTarget(name) && !strings.ContainsAny(name, "_")
}

// isTarget says whether a CNAME can lead to this name. An address is none.
func isTarget(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(name), ".") {
		if label == "" || len(label) > maxLabel || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}
