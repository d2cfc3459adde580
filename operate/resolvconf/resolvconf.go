// Package resolvconf computes the /etc/resolv.conf that a kubelet writes for a
// pod, from the pod's dnsPolicy, hostNetwork and dnsConfig, the kubelet's cluster
// domain and cluster DNS addresses, and the resolv.conf of the node. It reads
// files but contacts no API server, opens no socket and writes nothing. The
// command resolvconf uses it.
//
// Settings that the kubelet drops silently, or with an event, are returned as
// comments, one line each.
package resolvconf

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of the kubelet and of the API server.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048 // total length of the search domains, separated by spaces
	maxName        = 253  // some resolvers abort at a longer search domain
)

// A Policy is a pod's dnsPolicy.
type Policy string

// The values of dnsPolicy. The default is ClusterFirst.
const (
	ClusterFirst            Policy = "ClusterFirst"
	ClusterFirstWithHostNet Policy = "ClusterFirstWithHostNet"
	Default                 Policy = "Default"
	None                    Policy = "None"
)

// ParsePolicy returns the policy with a name.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(text); p {
	case ClusterFirst, ClusterFirstWithHostNet, Default, None:
		return p, nil
	}
	return "", fmt.Errorf("want %s, %s, %s or %s, got %q", ClusterFirst, ClusterFirstWithHostNet, Default, None, text)
}

// A Config is the content of a resolv.conf(5) or of a pod's dnsConfig. Words are
// not normalized: the kubelet compares and writes them as text.
type Config struct {
	Nameservers []string
	Searches    []string
	Options     []Option
}

// An Option is one word of an options line: NAME or NAME:VALUE.
type Option struct{ Name, Value string }

func (o Option) String() string {
	if o.Value == "" {
		return o.Name
	}
	return o.Name + ":" + o.Value
}

// String formats the file: nameserver lines, then search, then options. Empty
// lists have no line.
func (c Config) String() string {
	var b strings.Builder
	for _, s := range c.Nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(c.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(c.Searches, " "))
	}
	if len(c.Options) > 0 {
		b.WriteString("options")
		for _, o := range c.Options {
			b.WriteString(" " + o.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// add appends the settings of dnsConfig. It omits duplicate nameservers and
// search domains, and replaces options with the same name.
func (c Config) add(more Config) Config {
	return Config{
		Nameservers: distinct(c.Nameservers, more.Nameservers),
		Searches:    distinct(c.Searches, more.Searches),
		Options:     overwrite(c.Options, more.Options),
	}
}

func distinct(lists ...[]string) (all []string) {
	for _, list := range lists {
		for _, s := range list {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// overwrite merges options: each name has the position of its first use and the
// value of its last. The kubelet uses a map here, so its order varies from pod to
// pod.
func overwrite(lists ...[]Option) (all []Option) {
	for _, list := range lists {
		for _, o := range list {
			i := slices.IndexFunc(all, func(p Option) bool { return p.Name == o.Name })
			if i < 0 {
				all = append(all, o)
			} else {
				all[i] = o
			}
		}
	}
	return all
}
