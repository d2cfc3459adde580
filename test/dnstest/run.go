package dnstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

const (
	// deadline is how long replies may differ from the expectation after a change: a machine
	// without a free inotify instance looks at the files every 5 s.
	deadline = time.Minute
	// soon is how long it takes on a machine without other work.
	soon = 5 * time.Second
	// poll is the interval between two attempts.
	poll = 20 * time.Millisecond
)

// An Env is the environment of a script.
type Env struct {
	// Live returns a cluster for one script and cleans up when t ends. If nil,
	// the script runs with a folder of manifests only.
	Live func(t testing.TB) Source
	// CoreDNS is the path of CoreDNS's program. It answers the queries in Seamark's place, those of
	// the scripts for which it gives the same answers.
	CoreDNS string
	// Update replaces the expectations in the scripts by the replies.
	Update bool
}

// Run runs the script in a file; see the package documentation.
func Run(t *testing.T, env Env, file string) {
	s, err := readScript(file)
	if err != nil {
		t.Fatal(err)
	}

	if env.CoreDNS != "" && !s.coredns {
		t.Skip("the script is not for CoreDNS")
	}

	r := &runner{t: t, script: s, env: env, dir: t.TempDir()}
	if r.corefile, err = s.upstreams(t, r.dir); err != nil {
		t.Fatal(err)
	}
	if s.only != "live" && (env.CoreDNS == "" || env.Live == nil && !strings.Contains(s.corefile, "$SOURCE")) {
		r.open("folder", newFolder(t))
	}
	if s.only != "folder" && env.Live != nil && (env.CoreDNS == "" || strings.Contains(s.corefile, "$SOURCE")) {
		r.open("live", env.Live(t))
	}

	if len(r.sources) == 0 {
		t.Skip("needs a live API server: it runs in module kubetest")
	}

	for i, st := range s.steps {
		if err := r.change(st); err != nil {
			t.Fatalf("%s: step %d: %v", file, i+1, err)
		}
		if i == 0 {
			r.start()
		}
		if env.Update {
			r.learn(st)
		}

		began := time.Now()
		for _, q := range st.cases {
			r.check(q, began.Add(deadline))
		}
		bound.AtMost(t, fmt.Sprintf("step %d", i+1), time.Since(began), soon)
	}

	if env.Update {
		if err := s.rewrite(); err != nil {
			t.Fatal(err)
		}
	}
}

// A runner runs one script.
type runner struct {
	t        *testing.T
	script   *script
	env      Env
	dir      string // directory of the script's files
	corefile string
	sources  []Source
	variants []*variant
}

// A variant is a server and a protocol for the queries of a script.
type variant struct {
	source Source
	parked bool   // the server parks every query
	name   string // "folder, udp, parked"
	proto  string
	at     netip.AddrPort
	log    *chaintest.Log
}

func (r *runner) open(name string, source Source) {
	r.sources = append(r.sources, source)
	modes := []bool{false, true}
	if r.env.CoreDNS != "" {
		modes = modes[:1]
	}
	for _, parked := range modes {
		log := new(chaintest.Log)
		for _, proto := range []string{"udp", "tcp"} {
			v := &variant{source: source, parked: parked, name: name + ", " + proto, proto: proto, log: log}
			if parked {
				v.name += ", parked"
			}
			r.variants = append(r.variants, v)
		}
	}
}

// change writes a step's files, and applies and deletes its objects in every
// source.
func (r *runner) change(st *step) error {
	if err := st.write(r.dir); err != nil {
		return err
	}

	apply, err := objects(st.apply)
	if err != nil {
		return err
	}

	gone, err := objects(st.delete)
	if err != nil {
		return err
	}

	for _, source := range r.sources {
		for _, o := range apply {
			if err := source.Apply(o); err != nil {
				return fmt.Errorf("applying %s %s: %w", o.Kind, o.Name, err)
			}
		}
		for _, o := range gone {
			if err := source.Delete(o); err != nil {
				return fmt.Errorf("deleting %s %s: %w", o.Kind, o.Name, err)
			}
		}
	}
	return nil
}

// start starts two servers for each source. The variants for UDP and TCP share
// one.
func (r *runner) start() {
	for i := 0; i < len(r.variants); i += 2 {
		udp, tcp := r.variants[i], r.variants[i+1]
		r.t.Cleanup(func() {
			if r.t.Failed() {
				r.t.Logf("log of the server of %s:\n%s", udp.name, udp.log)
			}
		})

		var at netip.AddrPort
		var err error
		if r.env.CoreDNS != "" {
			at, err = ServeCoreDNS(r.t, r.env.CoreDNS, strings.ReplaceAll(r.corefile, "$SOURCE", udp.source.Corefile()), udp.log)
		} else {
			at, err = serve(r.t, r.corefile, udp)
		}
		if err != nil {
			r.t.Fatalf("%s: %s: %v", r.script.file, udp.name, err)
		}
		udp.at, tcp.at = at, at
	}
}

// serve starts the server on a port of the loopback interface, and stops it with the test.
func serve(t testing.TB, text string, v *variant) (at netip.AddrPort, err error) {
	text = strings.ReplaceAll(text, "$SOURCE", v.source.Corefile())
	read := kubedns.ExpandOnce(corefile.ReadText("Corefile", []byte(text)))
	if read.Err != nil {
		return at, read.Err
	}

	directives := builtin.Directives()
	if v.parked {
		directives = append([]config.Directive{parked()}, directives...)
		park(read.Servers)
	}

	plan, err := server.NewPlan(read.Servers, server.Options{
		Directives: directives,
		Port:       53,
		Listen:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Log:        server.NewLog(v.log, slog.LevelInfo),
		Metrics:    new(metrics.Registry),
	})
	if err != nil {
		return at, err
	}

	if err := plan.Start(context.Background(), nil); err != nil {
		return at, err
	}
	t.Cleanup(func() { plan.Stop(context.Background()) })
	return plan.Addresses()[0], nil
}

// check sends a query to all variants until all replies are as expected and
// equal, or until end.
func (r *runner) check(q *queryCase, end time.Time) {
	for {
		err := r.attempt(q)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			r.t.Errorf("%s: %v", q.at, err)
			return
		}
		time.Sleep(poll)
	}
}

// attempt sends a query to all variants once, concurrently.
func (r *runner) attempt(q *queryCase) error {
	replies := make([][]byte, len(r.variants))
	errs := make([]error, len(r.variants))
	var all sync.WaitGroup
	for i, v := range r.variants {
		if q.only == "" || q.only == v.proto {
			all.Go(func() { replies[i], errs[i] = v.ask(q) })
		}
	}

	all.Wait()
	if err := r.summary(errs); err != nil {
		return err
	}
	if r.script.differ || r.env.CoreDNS != "" {
		return nil
	}

	first := -1
	for i, v := range r.variants {
		switch reply := replies[i]; {
		case len(reply) == 0 || v.proto == "udp" && truncated(reply):
		case first < 0:
			first = i
		case !bytes.Equal(reply, replies[first]):
			return fmt.Errorf("replies differ\n%s\n%x\n%s\n%x", r.variants[first].dig(q), replies[first], v.dig(q),
				reply)
		}
	}
	return nil
}

// summary returns the first error and the names of the other variants with
// errors.
func (r *runner) summary(errs []error) error {
	var first error
	var others []string
	for i, err := range errs {
		switch {
		case err != nil && first == nil:
			first = err
		case err != nil:
			others = append(others, "("+r.variants[i].name+")")
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("%w\nalso wrong: %s", first, strings.Join(others, " "))
	}
	return first
}

func truncated(reply []byte) bool { return binary.BigEndian.Uint16(reply[2:])&wire.FlagTC != 0 }

// ask sends a query to one variant and returns an error if the reply is not as
// expected.
func (v *variant) ask(q *queryCase) ([]byte, error) {
	wait := patience
	if q.want.silence {
		wait = silence
	}
	reply, err := ask(v.at, v.proto, q.packet, wait)
	if err != nil {
		return nil, fmt.Errorf("%s\n%w", v.dig(q), err)
	}
	if wrong := q.check(reply, v.proto); wrong != "" {
		return nil, fmt.Errorf("%s\n%s", v.dig(q), wrong)
	}
	return reply, nil
}

// dig returns the query as a dig command, and the variant's name.
func (v *variant) dig(q *queryCase) string {
	words := strings.Fields(q.text)
	if v.proto == "tcp" && q.only == "" {
		words = append(words, "+tcp")
	}
	return fmt.Sprintf("dig @%s -p %d %s    (%s)", v.at.Addr(), v.at.Port(), strings.Join(words, " "), v.name)
}
