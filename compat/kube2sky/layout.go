package kube2sky

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// ours is what the keys begin with that are no names: who leads, and which of the
// names are ours.
const ours = "seamark"

// A layout says where things are in etcd.
type layout struct {
	zone
	tree   string // /skydns/: what stands before a path
	marks  string // the same before the mark that says that its key is ours
	leader string // the key of the election
}

func newLayout(prefix, domain string) layout {
	l := layout{zone: newZone(domain), tree: "/" + prefix + "/"}
	// One word, however many there are: no cluster's marks lie among another's.
	base := "/" + ours + "/kube2sky/" + strings.TrimSuffix(l.domain, ".") + "/" + url.PathEscape(prefix) + "/"
	l.marks, l.leader = base+"owned/", base+"leader"
	return l
}

// A place is what is written as one: the paths of one place are no other's.
type place struct {
	kind      placeKind
	namespace string     // of a Service or a pod
	name      string     // of a Service; the path that is nobody's
	addr      netip.Addr // of a pod or a reverse name
}

type placeKind uint8

const (
	ofService placeKind = iota // all that is below a Service's name
	ofPod                      // an address of pods
	ofReverse                  // a reverse name
	ofNobody                   // a path that is not written here any more
)

// root is the place's only path, or what all of its paths begin with.
func (z zone) root(p place) (path string, only bool) {
	switch p.kind {
	case ofService:
		return z.path + "svc/" + p.namespace + "/" + p.name + "/", false
	case ofPod:
		return z.path + "pod/" + p.namespace + "/" + dashed(p.addr) + "/", false
	case ofReverse:
		return reversePath(p.addr), true
	}
	return p.name, true
}

// placeOf is where a path belongs.
func (z zone) placeOf(path string) place {
	if rest, ok := strings.CutPrefix(path, z.path+"svc/"); ok {
		words := strings.SplitN(rest, "/", 3)
		if len(words) == 3 {
			return place{kind: ofService, namespace: words[0], name: words[1]}
		}
	}
	p := place{kind: ofNobody, name: path}
	if rest, ok := strings.CutPrefix(path, z.path+"pod/"); ok {
		words := strings.SplitN(rest, "/", 3)
		if len(words) == 3 {
			p = place{kind: ofPod, namespace: words[0], addr: undash(words[1])}
		}
	} else if rest, ok := strings.CutPrefix(path, reverse4); ok {
		p = place{kind: ofReverse, addr: parse(strings.ReplaceAll(rest, "/", "."))}
	} else if rest, ok := strings.CutPrefix(path, reverse6); ok {
		p = place{kind: ofReverse, addr: unreverse6(rest)}
	}
	// Only what is written here is read so: fd00--0-1 is no spelling of ours.
	if p.kind != ofNobody {
		if back, only := z.root(p); !p.addr.IsValid() || only && back != path || !strings.HasPrefix(path, back) {
			return place{kind: ofNobody, name: path}
		}
	}
	return p
}

func parse(text string) netip.Addr {
	ip, _ := netip.ParseAddr(text)
	return ip
}

func undash(label string) netip.Addr {
	if ip := parse(strings.ReplaceAll(label, "-", ".")); ip.IsValid() {
		return ip
	}
	return parse(strings.ReplaceAll(label, "-", ":"))
}

// unreverse6 reads 32 digits with slashes between them.
func unreverse6(rest string) netip.Addr {
	digits := strings.ReplaceAll(rest, "/", "")
	var b [16]byte
	if len(digits) != 2*len(b) {
		return netip.Addr{}
	}
	for i := range b {
		n, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
		if err != nil {
			return netip.Addr{}
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom16(b)
}
