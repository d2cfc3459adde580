// Package diff compares the answers of a DNS server with the objects of a cluster: the
// command diff, and the commands that need its result, call Run.
//
// Run starts a server in this process, without sockets, which reads the objects from an
// API server or a folder of manifests and follows their changes (expected.go). It lists
// queries for the names of the objects, and for similar names that do not exist (names.go),
// and sends each to that server and to the compared one (client.go). It compares the two answers
// (compare.go), looks a difference up among the intended ones (documented.go), and
// repeats the query later: a difference that a change of the cluster caused does not last.
package diff

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/operate/query"
)

// DefaultRate is the rate in queries per second if Options.Rate is zero: 10,000 Services
// with 150,000 endpoints are compared in two minutes.
const DefaultRate = 5000

// Options are the inputs of Run.
type Options struct {
	// Directives are the directives of a Corefile: builtin.Directives().
	Directives []config.Directive
	// Cluster locates the objects: Manifests, Kubeconfig with KubeconfigContext, or
	// Endpoint with its certificates. If all are empty, it is the service account of the
	// pod that the process runs in. Other fields are ignored.
	Cluster cluster.Options
	// Corefile is the text of a Corefile whose first kubernetes directive has the zones
	// and the options that the answers depend on, such as ttl. If it is empty, the TTL of the
	// server's SOA record decides between kubeadm's Corefile and the directive's defaults.
	Corefile string
	// Assumed is called with the name of the options that are used if Corefile is empty; it
	// may be nil.
	Assumed func(options string)
	// Address is the HOST:PORT of the server to compare.
	Address string
	// Transport is udp, also if it is empty, or tcp. Over UDP, truncated replies are
	// queried again over TCP.
	Transport string
	// Dial opens connections to the server; if it is nil, package net does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Rate is the largest number of queries a second; zero is DefaultRate.
	Rate int
	// Timeout is the time to wait for a reply before the query is sent again, three times in
	// all; zero is two seconds.
	Timeout time.Duration
	// RetryAfter is the time after which a query with a difference is repeated; zero is
	// two seconds.
	RetryAfter time.Duration
	// Reading is called at intervals with the time that reading the objects has taken so far;
	// nil for none.
	Reading func(time.Duration)
	// Progress receives the number of queries so far and the number of all queries, about
	// once a second, from one goroutine; it may be nil.
	Progress func(done, total int)
	// Log receives warnings about the objects; nil discards them.
	Log *slog.Logger
}

// A Report is the result of Run.
type Report struct {
	Server     string `json:"server"`
	Names      int    `json:"names"`
	Queries    int    `json:"queries"`
	Same       int    `json:"same"`
	Documented int    `json:"documented"` // intended differences
	Different  int    `json:"different"`  // other differences
	// Unrepeated are those of Different that no second query has confirmed: there were too many.
	Unrepeated int           `json:"unrepeated"`
	Changed    int           `json:"changed"` // of Same: the first answers differed
	Groups     []Group       `json:"groups"`  // the differences, undocumented ones first
	Time       time.Duration `json:"time_ns"`
}

// A Group is a set of differences with the same cause.
type Group struct {
	Cause   string `json:"cause"`   // such as "NXDOMAIN instead of records"
	Subject string `json:"subject"` // such as "Service"
	Type    string `json:"type"`    // of the queries; several are separated by commas
	Count   int    `json:"count"`
	// Reason is the reason in docs/reference/differences.md; "" if the difference is not
	// documented.
	Reason  string  `json:"reason,omitempty"`
	Example Example `json:"example"`
}

// An Example is one query whose answers differ.
type Example struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Expected []string `json:"expected"` // the response code, then the records that the server lacks
	Received []string `json:"received"` // the response code, then the records that are not expected
}

// Run compares the server's answers with the objects. It returns an error if it cannot
// read the objects, or if the server does not reply; differences are not errors. If ctx
// ends, it returns the report of the queries so far and an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Transport != "" && o.Transport != "udp" && o.Transport != "tcp" {
		return nil, fmt.Errorf("want the transport udp or tcp, got %q", o.Transport)
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, fmt.Errorf("want the HOST:PORT of a server, got %q", o.Address)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	o.Timeout, o.RetryAfter = cmp.Or(o.Timeout, 2*time.Second), cmp.Or(o.RetryAfter, 2*time.Second)

	client := &query.Client{Address: o.Address, Timeout: o.Timeout, Dial: o.Dial}
	defer client.Close()
	tcp, known := o.Transport == "tcp", o.Corefile != ""
	if !known {
		soa, err := client.Probe(ctx, "cluster.local", tcp)
		if err != nil {
			return nil, err
		}
		name := ""
		if o.Corefile, name = assumedCorefile(soa); o.Assumed != nil {
			o.Assumed(name)
		}
	}

	want, err := newExpected(ctx, o)
	if err != nil {
		return nil, err
	}
	defer want.stop()
	if known {
		if _, err := client.Probe(ctx, want.zones[0], tcp); err != nil {
			return nil, err
		}
	}
	r := &run{
		Options: o, want: want, client: client, pace: query.NewPace(o.Rate),
		types: map[groupKey]map[uint16]bool{}, examples: map[groupKey]question{},
		ttls: map[uint32]*lowTTL{}, groups: map[groupKey]*Group{},
	}
	return r.compareAll(ctx)
}
