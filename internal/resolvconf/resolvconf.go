// Package resolvconf says what a kubelet puts into a pod's /etc/resolv.conf: from
// the pod's dnsPolicy, hostNetwork and dnsConfig, the kubelet's cluster domain and
// cluster DNS addresses, and the file of the node. The command of this name calls
// it. The rules are functions of what was read; it asks no API server, opens no
// socket and writes no file.
//
// What the kubelet does in silence, or with an event that is gone in an hour, is
// given back as comments: one line each, without a mark at its start.
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
	maxSearchChars = 2048 // of all search domains, with a space between two
	maxName        = 253  // a longer search domain makes some resolvers abort
)

// A Policy is a pod's dnsPolicy.
type Policy string

// The policies there are. A pod without one has ClusterFirst.
const (
	ClusterFirst            Policy = "ClusterFirst"
	ClusterFirstWithHostNet Policy = "ClusterFirstWithHostNet"
	Default                 Policy = "Default"
	None                    Policy = "None"
)

// ParsePolicy gives the policy of that name.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(text); p {
	case ClusterFirst, ClusterFirstWithHostNet, Default, None:
		return p, nil
	}
	return "", fmt.Errorf("want %s, %s, %s or %s, got %q", ClusterFirst, ClusterFirstWithHostNet, Default, None, text)
}

// A Config is what a resolv.conf(5) says, or what a pod's dnsConfig adds to one.
// Words are as they were written: the kubelet compares and writes them as text.
type Config struct {
	Nameservers []string
	Searches    []string
	Options     []Option
}

// An Option is one word of an options line: the name alone, or NAME:VALUE.
type Option struct{ Name, Value string }

func (o Option) String() string {
	if o.Value == "" {
		return o.Name
	}
	return o.Name + ":" + o.Value
}

// String is the file: nameserver lines, then search, then options. What is empty
// has no line.
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

// add puts what dnsConfig says behind what is there. Words that are there already
// are left out, and an option takes the place of the one of its name.
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

// overwrite keeps each name's first place and last value. The kubelet goes
// through a map here, so that its own order differs from pod to pod.
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
