package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/dnstap"
	"github.com/seamark/seamark/operate/diff"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/operate/shadow"
	"github.com/spf13/cobra"
)

// shadowFlags are the flags of the command shadow.
type shadowFlags struct {
	pcap, dnstap             string
	conf, manifests, against string
	server, to, domain       string
	output, failOn           string
	port                     uint16
	rate, limit              int
	pace                     string
	duration, timeout        time.Duration
	quiet                    bool
}

func (p *program) shadowCommand() *cobra.Command {
	var s shadowFlags
	c := &cobra.Command{
		Use:   "shadow {--pcap FILE | --dnstap FILE|unix:PATH|tcp:ADDRESS}",
		Short: "Compare the answers that another DNS server gave to real queries with Seamark's",
		Long: `Shadow takes the queries and responses of another DNS server from a capture, asks
Seamark the same queries, and compares the answers. It shows the differences, and what
Seamark would save. It answers no client.

The capture is a file of tcpdump (--pcap), a file of dnstap messages, or a socket to which
servers send them (--dnstap). Seamark is a Corefile (--conf) or a folder (--manifests), in a
process that listens on no address, where the client's address is the captured one, or a
running server (--against), which sees the queries as ours.

Answers are compared as diff compares them. The objects should be those of the time of the
capture. Records of upstreams may differ each time.

A file is replayed as fast as --rate allows. With --pace captured it takes as long as the
capture did, so that the cache expires as it would have. Of a socket, queries over --rate are
counted and not compared. Ctrl-C ends the command, which prints the report of what it has
compared.

The exit status is 0 without differences, 1 with differences, and 2 if the comparison is
not complete. --fail-on all counts intended differences too; --fail-on none does not count
any.`,
		Example: `  seamark shadow --pcap capture.pcap --manifests examples
  tcpdump -i eth0 -s 0 -w - port 53 | seamark shadow --pcap - --conf Corefile --duration 10m
  seamark shadow --dnstap unix:/run/seamark/dnstap.sock --conf Corefile --limit 100000
  seamark shadow --dnstap file.dnstap --against 10.96.0.10 --output json
  seamark shadow --pcap capture.pcap --conf Corefile --to 10.96.0.10 --pace captured`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return p.shadow(c.Context(), s) },
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.pcap, "pcap", "", `capture in the format pcap or pcapng: a FILE, or "-" for standard input`)
	f.StringVar(&s.dnstap, "dnstap", "",
		`dnstap messages: a Frame Streams FILE, "-" for standard input, or unix:PATH or tcp:HOST:PORT to listen on`)
	f.StringVar(&s.conf, "conf", "", `Corefile to answer with (default "Corefile" if it exists)`)
	f.StringVar(&s.manifests, "manifests", "",
		"answer for the cluster described by the YAML and JSON files of this `FOLDER`, without a Corefile")
	f.StringVar(&s.against, "against", "", "answer by a running server: `HOST[:PORT]`")
	f.StringVar(&s.server, "server", "",
		"`ADDRESS` of the Corefile that receives the queries, such as dns://:53 (default the first)")

	f.Uint16Var(&s.port, "port", 53, "port of the captured server, with --pcap")
	f.StringVar(&s.to, "to", "", "only queries to the captured server with this `IP` address, with --pcap")
	f.StringVar(&s.domain, "cluster-domain", "cluster.local", "zone of the cluster")
	f.IntVar(&s.rate, "rate", diff.DefaultRate, "largest number of queries a second")
	f.StringVar(&s.pace, "pace", "fast",
		"when the queries of a file are asked: fast (as --rate allows), or captured (at the pace of the capture)")
	f.IntVar(&s.limit, "limit", 0, "end after this number of queries with a response")
	f.DurationVar(&s.duration, "duration", 0, "end after this time of the capture")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long to wait for the objects of the cluster")

	f.StringVar(&s.failOn, "fail-on", "diff", "what makes the exit status 1: diff, all or none")
	outputFlag(c, &s.output)
	f.BoolVar(&s.quiet, "quiet", false, "do not print the progress")
	complete(c, "pace", "fast", "captured")
	return c
}

// check returns an error unless the flags fit together.
func (s *shadowFlags) check() error {
	if err := errors.Join(
		oneOf("fail-on", s.failOn, "diff", "all", "none"),
		oneOf("output", s.output, "text", "json"),
		oneOf("pace", s.pace, "fast", "captured"),
	); err != nil {
		return err
	}

	sources := 0
	for _, flag := range []string{s.conf, s.manifests, s.against} {
		if flag != "" {
			sources++
		}
	}
	_, err := netip.ParseAddr(s.to)
	_, socket := dnstapSocket(s.dnstap)

	switch {
	case s.pcap == "" && s.dnstap == "":
		return errors.New("want --pcap FILE or --dnstap FILE|unix:PATH|tcp:HOST:PORT")
	case s.pcap != "" && s.dnstap != "":
		return errors.New("set only one of --pcap and --dnstap")
	case sources > 1:
		return errors.New("set only one of --conf, --manifests and --against")
	case s.pcap == "-" && (s.conf == "-" || s.conf == "stdin"):
		return errors.New("standard input is the capture: set --conf to a file")
	case s.pace == "captured" && socket:
		return errors.New("--pace captured is for files: queries from a socket are asked when they come")
	case s.against != "" && s.server != "":
		return errors.New("--server is an address of the Corefile: it has no meaning with --against")

	case s.to != "" && err != nil:
		return fmt.Errorf("--to: want an IP address, got %q", s.to)
	case s.port == 0:
		return errors.New("--port: want 1..65535, got 0")
	case s.rate < 1 || s.rate > 1e6:
		return fmt.Errorf("--rate: want 1..1000000, got %d", s.rate)
	case s.limit < 0:
		return fmt.Errorf("--limit: want a positive number, got %d", s.limit)
	case s.duration < 0:
		return fmt.Errorf("--duration: want a positive duration, got %v", s.duration)
	case s.timeout <= 0:
		return fmt.Errorf("--timeout: want a positive duration, got %v", s.timeout)
	case s.against != "":
		return checkServer(s.against)
	}
	return nil
}

func (p *program) shadow(ctx context.Context, s shadowFlags) error {
	if err := s.check(); err != nil {
		return err
	}

	o := shadow.Options{
		ClusterDomain: s.domain, Unserved: s.manifests != "", Rate: s.rate, Captured: s.pace == "captured",
		Limit: s.limit, Duration: s.duration,
	}
	source, closeSource, err := p.shadowSource(s, &o)
	if err != nil {
		return incomplete{err}
	}
	defer closeSource()
	o.Source = source
	asker, stop, err := p.asker(ctx, s)
	if err != nil {
		return incomplete{err}
	}
	defer stop()
	o.Asker = asker
	if !s.quiet {
		o.Progress = func(read, compared int) {
			fmt.Fprintf(p.err, "%s with a response, %d compared\n", counted(read, "query", "queries"), compared)
		}
	}

	report, err := shadow.Run(ctx, o)
	if report.Packets > 0 || err == nil {
		show := writeShadow
		if s.output == "json" {
			show = func(w io.Writer, r *shadow.Report) error { return indented(escaped{w}, r) }
		}
		if err := show(p.out, report); err != nil {
			return incomplete{fmt.Errorf("writing the output: %w", err)}
		}
	}

	unused := err != nil && report.Queries == 0 && report.Packets > 0
	switch {
	case unused && len(report.Skipped) > 0 && report.Skipped[shadow.SkippedAddress] == 0:
		return incomplete{fmt.Errorf("%w: the report counts by reason what was not used", err)}
	case unused && s.pcap != "":
		return incomplete{fmt.Errorf("%w: set --port and --to to the address of the captured server", err)}
	case err != nil:
		return incomplete{err}
	case s.failOn != "none" && report.Different > 0, s.failOn == "all" && report.Documented > 0:
		return different{}
	}
	return nil
}

// shadowSource opens the capture, and returns a function that closes it.
func (p *program) shadowSource(s shadowFlags, o *shadow.Options) (shadow.Source, func(), error) {
	if socket, ok := dnstapSocket(s.dnstap); ok {
		r, err := dnstap.NewReceiver(socket)
		if err != nil {
			return nil, nil, fmt.Errorf("--dnstap: %w", err)
		}
		o.Endless, o.Live = true, true
		r.Connected = func(sender string) { fmt.Fprintf(p.err, "%s sends dnstap messages\n", visible(sender)) }
		r.Disconnected = func(sender string, err error) {
			if err == nil {
				err = errors.New("closed the stream")
			}
			fmt.Fprintf(p.err, "%s: %s\n", visible(sender), visible(err.Error()))
		}
		fmt.Fprintf(p.err, "Waiting for dnstap messages at %v. Ctrl-C ends.\n", r.Address())
		return shadow.DnstapStream{Receiver: r}, func() { _ = r.Close() }, nil
	}

	var in io.ReadCloser
	var interrupt func()
	name := s.pcap + s.dnstap
	open := func() (io.Reader, error) { return os.Open(name) }
	info, err := os.Stat(name)
	fifo := err == nil && info.Mode().Type() == fs.ModeNamedPipe
	if name == "-" {
		open = func() (io.Reader, error) { return p.in, nil }
	}

	if name == "-" || fifo {
		pipe := piped(open)
		o.Endless, in, interrupt = true, pipe, func() { _ = pipe.Close() }
	} else if in, err = os.Open(name); err != nil {
		return nil, nil, fmt.Errorf("reading the capture: %w", err)
	}

	closeInput := func() { _ = in.Close() }
	if s.dnstap != "" {
		return shadow.DnstapFile{Reader: in, Interrupt: interrupt}, closeInput, nil
	}
	to, _ := netip.ParseAddr(s.to)
	return shadow.Pcap{Reader: in, Port: s.port, Server: to, Interrupt: interrupt}, closeInput, nil
}

// piped returns what open opens as a pipe whose Close ends a Read that waits. Neither a read of standard
// input nor the opening of a FIFO without a writer can be interrupted: the goroutine ends with the input,
// or with the process.
func piped(open func() (io.Reader, error)) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		from, err := open()
		if err == nil {
			_, err = io.Copy(in, from)
		}
		_ = in.CloseWithError(err)
	}()
	return out
}

// dnstapSocket returns the socket that a value of --dnstap names; false if it is a file.
func dnstapSocket(text string) (s dnstap.Socket, ok bool) {
	network, address, ok := strings.Cut(text, ":")
	if !ok || network != "unix" && network != "tcp" {
		return s, false
	}
	return dnstap.Socket{Text: text, Network: network, Address: strings.TrimPrefix(address, "//")}, true
}

// asker returns the server that s selects, and a function that stops it.
func (p *program) asker(ctx context.Context, s shadowFlags) (shadow.Asker, func(), error) {
	if s.against != "" {
		client := &query.Client{
			Address: query.WithPort(s.against), Timeout: 2 * time.Second, Dial: new(net.Dialer).DialContext,
		}
		if _, err := client.Probe(ctx, s.domain, false); err != nil {
			client.Close()
			return nil, nil, err
		}
		return shadow.Remote{Client: client}, client.Close, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	server, err := p.startLocal(ctx, serve{conf: s.conf, manifests: s.manifests, port: 53})
	if err != nil {
		return nil, nil, err
	}
	port, err := server.Port(s.server)
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return shadow.Local{Port: port}, server.Stop, nil
}
