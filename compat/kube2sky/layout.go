package kube2sky

import (
	"encoding/hex"
	"net/netip"
	"net/url"
	"strings"
)

// reservedPrefix is the first part of the keys that are not names: the election
// and the ownership marks.
const reservedPrefix = "seamark"

// A layout has the prefixes of keys in etcd.
type layout struct {
	zone
	tree     string // /skydns/: the prefix of a path
	marks    string // the prefix of a path's ownership mark
	election string // the prefix of the keys of the election
}

func newLayout(prefix, domain string) layout {
	l := layout{zone: newZone(domain), tree: "/" + prefix + "/"}
	// The escaped prefix is one part of the key, so the marks of clusters never
	// overlap.
	cluster := strings.TrimSuffix(l.domain, ".") + "/" + url.PathEscape(prefix)
	base := "/" + reservedPrefix + "/kube2sky/" + cluster + "/"
	l.marks, l.election = base+"owned/", base+"leader"
	return l
}

// A keyGroup identifies keys that are compared and written together: the keys of a
// Service, of an address of pods, or of a reverse name. No path belongs to two groups.
type keyGroup struct {
	kind      groupKind
	namespace string     // of a Service or a pod
	name      string     // of a Service; for unknownGroup, a path
	addr      netip.Addr // of a pod or a reverse name
}

type groupKind uint8

const (
	serviceGroup groupKind = iota // all keys below a Service's name
	podGroup                      // an address of pods
	reverseGroup                  // a reverse name
	unknownGroup                  // a path that kube2sky no longer writes
)

// root returns the only path of a group, or the prefix of its paths.
func (z zone) root(p keyGroup) (path string, only bool) {
	switch p.kind {
	case serviceGroup:
		return z.path + "svc/" + p.namespace + "/" + p.name + "/", false
	case podGroup:
		return z.path + "pod/" + p.namespace + "/" + dashed(p.addr) + "/", false
	case reverseGroup:
		return reversePath(p.addr), true
	}
	return p.name, true
}

// groupOf returns the group that a path belongs to.
func (z zone) groupOf(path string) keyGroup {
	if rest, ok := strings.CutPrefix(path, z.path+"svc/"); ok {
		words := strings.SplitN(rest, "/", 3)
		if len(words) == 3 {
			return keyGroup{kind: serviceGroup, namespace: words[0], name: words[1]}
		}
	}

	p := keyGroup{kind: unknownGroup, name: path}
	if rest, ok := strings.CutPrefix(path, z.path+"pod/"); ok {
		words := strings.SplitN(rest, "/", 3)
		if len(words) == 3 {
			p = keyGroup{kind: podGroup, namespace: words[0], addr: undash(words[1])}
		}
	} else if rest, ok := strings.CutPrefix(path, reverse4); ok {
		p = keyGroup{kind: reverseGroup, addr: parse(strings.ReplaceAll(rest, "/", "."))}
	} else if rest, ok := strings.CutPrefix(path, reverse6); ok {
		p = keyGroup{kind: reverseGroup, addr: unreverse6(rest)}
	}

	// Accept only the spelling that kube2sky writes: not fd00--0-1, for example.
	if p.kind != unknownGroup {
		if back, only := z.root(p); !p.addr.IsValid() || only && back != path || !strings.HasPrefix(path, back) {
			return keyGroup{kind: unknownGroup, name: path}
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

// unreverse6 parses 32 hexadecimal digits separated by slashes.
func unreverse6(rest string) netip.Addr {
	b, _ := hex.DecodeString(strings.ReplaceAll(rest, "/", "")) // groupOf compares the path
	ip, _ := netip.AddrFromSlice(b)
	return ip
}
