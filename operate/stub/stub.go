// Package stub resolves names as the resolver library of a pod does (resolv.conf(5), as
// glibc implements it), and reports each query. The command query uses it.
package stub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/operate/resolvconf"
)

// A Resolver has the settings of a resolv.conf.
type Resolver struct {
	Servers  []string // with ports
	Searches []string
	Ndots    int // a name with fewer dots is tried with the search domains first
	Attempts int // how often the servers are queried, one after the other
}

// New returns the resolver of a resolv.conf, with glibc's defaults and limits.
func New(c resolvconf.Config) Resolver {
	r := Resolver{Searches: c.Searches, Ndots: 1, Attempts: 2}
	for _, s := range c.Nameservers {
		r.Servers = append(r.Servers, query.WithPort(s))
	}
	r.Servers = r.Servers[:min(len(r.Servers), 3)]
	for _, o := range c.Options {
		n, err := strconv.Atoi(o.Value)
		if err != nil || n < 0 {
			continue // the library ignores it too
		}
		switch o.Name {
		case "ndots":
			r.Ndots = min(n, 15)
		case "attempts":
			r.Attempts = min(max(n, 1), 5)
		}
	}
	return r
}

// A Step is one query and its result.
type Step struct {
	Name    string        `json:"name"`
	Type    string        `json:"type"`
	Server  string        `json:"server"`
	RCode   string        `json:"rcode,omitempty"` // as dig writes it
	Records []string      `json:"records,omitempty"`
	Error   string        `json:"error,omitempty"` // if there was no reply
	Time    time.Duration `json:"time_ns"`

	found bool // there is a record of the type
}

// failed reports whether another server may know more.
func (s Step) failed() bool {
	return s.RCode == "SERVFAIL" || s.RCode == "REFUSED" || s.RCode == "NOTIMP"
}

// Candidates returns the names that are queried for name, in their order.
func (r Resolver) Candidates(name string) ([]string, error) {
	absolute := dns.Fqdn(name)
	if _, ok := dns.IsDomainName(absolute); !ok || name == "" {
		return nil, errors.New("not a domain name: want labels of 1 to 63 bytes, and at most 255 bytes in all")
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return nil, errors.New("not a domain name: a control character is written as \\007, for example")
	}
	if dns.IsFqdn(name) {
		return []string{absolute}, nil
	}

	var names []string
	for _, s := range r.Searches {
		candidate := absolute
		if s != "." {
			candidate += dns.Fqdn(s)
		}
		if _, ok := dns.IsDomainName(candidate); ok && !slices.Contains(names, candidate) {
			names = append(names, candidate)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == absolute })

	if strings.Count(name, ".") >= r.Ndots {
		return slices.Insert(names, 0, absolute), nil
	}
	return append(names, absolute), nil
}

// ErrNotFound means that no candidate has a record of one of the types, and errFailed that
// the servers reported failures for at least one and found none.
var (
	ErrNotFound = errors.New("no such name, or no records of the type")
	errFailed   = errors.New("not found, and the servers failed to answer some queries")
)

// Lookup queries the candidates for name until one of them has a record of one of the
// types, and calls report after each query. It ends with an error if no server replies.
func (r Resolver) Lookup(ctx context.Context, name string, types []uint16, report func(Step)) error {
	candidates, err := r.Candidates(name)
	if err != nil {
		return err
	}
	if len(r.Servers) == 0 {
		return errors.New("the resolv.conf has no nameserver")
	}

	result := ErrNotFound
	for _, candidate := range candidates {
		found := false
		for _, t := range types {
			step := r.ask(ctx, candidate, t, report)
			if step.Error != "" {
				return errors.New(step.Error)
			}
			found = found || step.found
			if step.failed() {
				result = errFailed
			}
		}
		if found {
			return nil
		}
	}
	return result
}

// ask sends one query to the servers until one of them answers it, and returns the last
// step.
func (r Resolver) ask(ctx context.Context, name string, t uint16, report func(Step)) (last Step) {
	for range r.Attempts {
		for _, server := range r.Servers {
			last = exchange(ctx, server, name, t)
			report(last)
			if last.Error == "" && !last.failed() || ctx.Err() != nil {
				return last
			}
		}
	}
	return last
}

func exchange(ctx context.Context, server, name string, t uint16) Step {
	m := new(dns.Msg).SetQuestion(name, t)
	m.SetEdns0(1232, false)
	s := Step{Name: name, Type: cmp.Or(dns.TypeToString[t], "TYPE"+strconv.Itoa(int(t))), Server: server}
	start := time.Now()
	reply, err := query.Exchange(ctx, server, m)
	s.Time = time.Since(start)
	if err != nil {
		s.Error = err.Error()
		return s
	}
	s.RCode = query.RCode(reply)
	for _, record := range reply.Answer {
		s.found = s.found || record.Header().Rrtype == t || t == dns.TypeANY
		s.Records = append(s.Records, strings.ReplaceAll(record.String(), "\t", " "))
	}
	return s
}
