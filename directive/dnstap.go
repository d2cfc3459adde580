package directive

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/dnstap"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/redact"
)

// Dnstap sends queries and replies to receivers of dnstap messages: the dnstap directive. Its
// reference page is docs/reference/directives/dnstap.md.
type Dnstap struct {
	taps []*tap

	// Messages are encoded in these buffers. Readers would wait for each other in the
	// receiver's queue all the same.
	mu             sync.Mutex
	extra, payload []byte
}

// A tap is one dnstap directive in a Corefile.
type tap struct {
	socket            dnstap.Socket
	listen, full      bool
	sample            bool // the kernel of a node may repeat replies
	writeBuffer       int  // bytes
	queue             int
	identity, version []byte
	extra             *format // may be nil
	files             tlsFiles

	out interface{ Send(payload []byte) }
}

// SetupDnstap sets up the dnstap directive.
func SetupDnstap(b *config.Block, uses []corefile.Directive) error {
	d := &Dnstap{}
	var errs []error
	for _, use := range uses {
		t, err := newTap(b, use)
		errs = append(errs, err)
		d.taps = append(d.taps, t)
		b.OnStart(func(s *config.Start) error { return use.Each(t.start(s, b)) })
	}
	b.Offer(d.observer())
	b.OnPlanned(func() error {
		for _, t := range d.taps {
			t.extra.bindMetadata(b)
		}
		return nil
	})
	return errors.Join(errs...)
}

func newTap(b *config.Block, d corefile.Directive) (*tap, error) {
	t := &tap{writeBuffer: 1, queue: 1}
	identity, _ := os.Hostname() // an empty identity is left out
	version := "Seamark"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version += " " + info.Main.Version
	}

	hasTLS := false
	parseExtra := func(o corefile.Directive) (err error) {
		t.extra, err = parseText(o.Args[0].Text)
		return o.Each(err)
	}
	parseTLS := func(o corefile.Directive) error {
		hasTLS = true
		return t.files.Parse(b, o, tls.RequireAndVerifyClientCert)
	}
	err := errors.Join(t.parseArgs(b, d), d.Options(
		corefile.Option{Usage: "identity TEXT", Set: corefile.String(&identity)},
		corefile.Option{Usage: "version TEXT", Set: corefile.String(&version)},
		corefile.Option{Usage: "extra FORMAT", Set: parseExtra},
		corefile.Option{Usage: "tls CERT KEY [CA]", Once: true, Block: true, Set: parseTLS},
		corefile.Option{Usage: "skipverify", Set: corefile.Flag(&t.socket.SkipVerify)},
		corefile.Option{Usage: "sample", Set: corefile.Flag(&t.sample)},
	))

	switch {
	case err != nil:
	case hasTLS && !(t.listen && t.socket.TLS):
		err = d.Errorf("the option tls is for listen tls://HOST:PORT")
	case !hasTLS && t.listen && t.socket.TLS:
		err = d.Errorf("listen %s needs the option tls CERT KEY [CA]", t.socket.Text)
	case t.socket.SkipVerify && !t.socket.TLS:
		err = d.Errorf("skipverify is for tls://HOST:PORT")
	}

	if t.listen && t.socket.SkipVerify {
		t.files.TLS = web.TLS{Cert: t.files.Cert, Key: t.files.Key}
	}
	t.identity, t.version = []byte(identity), []byte(version)
	return t, err
}

func (t *tap) parseArgs(b *config.Block, d corefile.Directive) error {
	args := d.Args
	if len(args) > 0 && args[0].Text == "listen" {
		t.listen, args = true, args[1:]
	}
	if len(args) == 0 {
		return d.Errorf("want the socket of the receivers: a path, tcp://HOST:PORT or tls://HOST:PORT")
	}

	var err error
	if t.socket, err = parseTapSocket(b, args[0].Text); err != nil {
		return args[0].Errorf(d.Path, "%w", err)
	}
	if at := t.socket; t.listen && at.Network == "unix" && len(at.Address) > config.MaxSocketPath {
		return args[0].Errorf(d.Path, "want a path of at most %d bytes, got %d: %s", config.MaxSocketPath, len(at.Address), at.Address)
	}
	if args = args[1:]; len(args) > 0 {
		if args[0].Text != "full" {
			return args[0].Errorf(d.Path, "want full, got %q", args[0].Text)
		}
		t.full, args = true, args[1:]
	}

	// Numbers are for a connection that this server makes.
	limits := []struct {
		name string
		n    *int
		most int
	}{{"WRITEBUFFER", &t.writeBuffer, 1024}, {"QUEUE", &t.queue, 4096}}
	if t.listen {
		limits = nil
	}
	if len(args) > len(limits) {
		return args[len(limits)].Errorf(d.Path, "unexpected argument %q", args[len(limits)].Text)
	}
	for i, a := range args {
		n, err := strconv.Atoi(a.Text)
		if err != nil || n < 1 || n > limits[i].most {
			return a.Errorf(d.Path, "%s: want 1 to %d, got %q", limits[i].name, limits[i].most, a.Text)
		}
		*limits[i].n = n
	}
	t.writeBuffer <<= 20
	return nil
}

func parseTapSocket(b *config.Block, text string) (dnstap.Socket, error) {
	s := dnstap.Socket{Text: text, Network: "unix", Address: b.Path(strings.TrimPrefix(text, "unix://"))}
	scheme, _, ok := strings.Cut(text, "://")
	if !ok || scheme == "unix" {
		return s, nil
	}

	u, err := corefile.ParseURL(text)
	if err != nil {
		return s, fmt.Errorf("want a path, unix://, tcp:// or tls://, got %q", redact.URL(text))
	}
	if scheme != "tcp" && scheme != "tls" {
		return s, fmt.Errorf("want a path, unix://, tcp:// or tls://, got %q", redact.URL(text))
	}
	if u.Hostname() == "" || u.Port() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return s, fmt.Errorf("want %s://HOST:PORT, got %q", scheme, redact.URL(text))
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil {
		return s, fmt.Errorf("want a port of 0..65535, got %q", u.Port())
	}
	s.Network, s.Address, s.TLS = "tcp", u.Host, scheme == "tls"
	return s, nil
}

// start connects to the receiver, or listens. The connection of an equal directive
// is used for both, and survives a reload.
func (t *tap) start(s *config.Start, b *config.Block) error {
	count := b.Metrics.Counter("seamark_dnstap_lost_messages_total",
		"Messages about queries that no dnstap receiver got.", "socket", t.socket.Text)
	lost := dnstap.NewLost(count, b.Log, t.socket)

	if !t.listen {
		type key struct {
			socket             dnstap.Socket
			writeBuffer, queue int
		}
		out, err := config.Keep(s, key{t.socket, t.writeBuffer, t.queue}, func() (*dnstap.Sender, error) {
			return dnstap.NewSender(t.socket, t.queue, t.writeBuffer, lost), nil
		})
		t.out = out
		return err
	}

	var encryption func() *tls.Config
	if t.socket.TLS {
		certs, err := keepCertificates(s, b, t.files)
		if err != nil {
			return err
		}
		encryption = certs.config.Load
	}
	first, _ := config.Keep(s, config.InPlan{Plan: s, Key: t.socket.Address}, func() (sharedTap, error) { return sharedTap{t}, nil })
	if first.socket.TLS != t.socket.TLS || first.files != t.files {
		return fmt.Errorf("another directive dnstap listens at %s with other options of TLS", t.socket.Text)
	}

	out, err := config.Keep(s, t.socket.Address, func() (*dnstap.Listener, error) {
		return dnstap.NewListener(s, t.socket, lost, b.Memory)
	})
	if err != nil {
		return err
	}
	t.out = out
	b.OnSwap(func() { out.Serve(t.files, encryption) })
	return nil
}

// A sharedTap is the first directive of a plan that listens at an address.
type sharedTap struct{ *tap }

// Stop implements config.Stopper.
func (sharedTap) Stop() {}

// observer returns the observer of queries. If all taps have the option sample, it asks for a sample of the queries
// that the kernel of a node answers, and otherwise for all queries, so that the kernel answers none.
func (d *Dnstap) observer() dns.Observer {
	if slices.ContainsFunc(d.taps, func(t *tap) bool { return !t.sample }) {
		return d
	}
	return sampledDnstap{d}
}

// A sampledDnstap lets the kernel of a node repeat replies.
type sampledDnstap struct{ *Dnstap }

// Repetition asks for a sample of the queries to which replies are repeated. Their messages have the number of
// queries that they stand for.
func (d sampledDnstap) Repetition() dns.Repetition {
	return dns.Repetition{
		Samples: func() dns.SampleRate { return dns.ManySamples },
		Sample: func(q *dns.Query, weight float64) {
			d.observe(q, fmt.Appendf(nil, "kernel %.0f", weight))
		},
	}
}

// ObserveDNS sends the messages about a client's query.
func (d *Dnstap) ObserveDNS(q *dns.Query) { d.observe(q, nil) }

// observe sends the messages about a client's query, with a text at the end of the field extra.
func (d *Dnstap) observe(q *dns.Query, extra []byte) {
	m := dnstap.Message{Client: q.Peer, Server: q.Local, Proto: q.Network(), Query: q.Start, Extra: extra}
	d.send(q, m, dnstap.ClientQuery, q.Packet())
	if !q.Dropped() {
		m.Response = q.Start.Add(q.Elapsed)
		d.send(q, m, dnstap.ClientResponse, q.Reply())
	}
}

// ObserveExchange sends the messages about a query to an upstream.
func (d *Dnstap) ObserveExchange(q *dns.Query, e *dns.Exchange) {
	m := dnstap.Message{Client: e.Local, Server: e.Upstream, Proto: e.Proto, Query: e.Sent}
	d.send(q, m, dnstap.ForwarderQuery, e.Query)
	if !e.Received.IsZero() {
		m.Response = e.Received
		d.send(q, m, dnstap.ForwarderResponse, e.Reply)
	}
}

// maxTapBuffer is the size of the largest buffer that is kept for other messages.
const maxTapBuffer = 16 << 10

// send sends m, which is about q, to the receivers of all taps. Its field extra follows that of the tap.
func (d *Dnstap) send(q *dns.Query, m dnstap.Message, kind dnstap.Kind, packet []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()

	m.Kind = kind
	extra := m.Extra
	for _, t := range d.taps {
		m.Identity, m.Version, m.Extra, m.Packet = t.identity, t.version, extra, nil
		if t.full {
			m.Packet = packet
		}
		if t.extra != nil {
			d.extra = t.extra.append(d.extra[:0], q)
			if len(extra) > 0 {
				d.extra = append(append(d.extra, ' '), extra...)
			}
			m.Extra = d.extra
		}
		d.payload = m.Append(d.payload[:0])
		t.out.Send(d.payload)
	}
	if cap(d.payload) > maxTapBuffer {
		d.payload = nil
	}
}
