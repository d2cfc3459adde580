package forward

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/certpool"
	"github.com/seamark/seamark/wire"
)

// Setup reads the forward directives of a server block.
func Setup(b *config.Block, uses []corefile.Directive) error {
	return setupWith(b, uses, (*Forward).parse)
}

// setupWith sets up directives, each of which parse reads into a Forward.
func setupWith(
	b *config.Block, uses []corefile.Directive, parse func(*Forward, *config.Block, corefile.Directive) error,
) error {
	var forwards []*Forward
	var errs []error

	// A query holds the state of few keys without allocating, so all forwards of the
	// block share one.
	stateKey := b.NewStateKey()
	for _, d := range uses {
		f := newForward()
		f.stateKey = stateKey
		errs = append(errs, parse(f, b, d))
		f.rejects = b.Metrics.Counter("coredns_forward_max_concurrent_rejects_total",
			"Queries refused because max_concurrent queries were waiting.")
		b.Handle(f)
		b.Answers(f.extent(d))
		forwards = append(forwards, f)
	}
	for i, f := range forwards {
		f.following = forwards[i+1:]
	}

	b.OnPlanned(func() error {
		observers := config.Find[dns.ExchangeObserver](b)
		for _, f := range forwards {
			f.observers = observers
		}
		return nil
	})
	b.OnStart(func(s *config.Start) (err error) {
		for _, f := range forwards {
			f.set, err = config.Keep(s, f.options.key(), func() (*upstreamSet, error) {
				set := newUpstreamSet(s.Context, f.options, b.Dial, b.Log, b.Metrics)
				set.memory = b.Memory
				set.reportTo(b.Health())
				return set, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(errs...)
}

// extent returns where f answers. The options next pass queries to another forward, by their answer.
func (f *Forward) extent(use corefile.Directive) config.Extent {
	e := config.Extent{
		Use: use, Zones: f.from, Through: &f.fallthru, Option: "fallthrough",
		Open: len(f.nextCodes) > 0 || f.nextOnNodata,
	}
	if !f.fallthru.On {
		e.Through, e.Option = &config.Fallthrough{On: len(f.except) > 0, Zones: f.except}, "except"
	}
	return e
}

func newForward() *Forward {
	f := &Forward{options: upstreamOptions{
		maxAttempts: -1,
		check:       healthCheck{domain: wire.Root},
		tls:         tlsOptions{Config: &tls.Config{MinVersion: tls.VersionTLS12}},
	}}
	f.excluded.Store(new([]string))
	return f
}

// key returns a string that is equal for equal options.
func (o upstreamOptions) key() string {
	o.tls.Config = nil // which tls.id identifies
	return fmt.Sprintf("%+v", o)
}

// tlsOptions is the option tls. id is a hash of the names and contents of the files.
type tlsOptions struct {
	*tls.Config
	id string
}

const (
	oneDay   = 24 * time.Hour
	maxCount = 1 << 20
)

// parseDestinationFunc is the type of parseDestination.
type parseDestinationFunc func(text string, exists func(path string) bool) (destination, error)

// parseWith reads FROM, TO and the options that forward and grpc share, and more options.
func (f *Forward) parseWith(
	b *config.Block, d corefile.Directive, parseDestination parseDestinationFunc, more ...corefile.Option,
) (err error) {
	if err := d.Arity(2, -1); err != nil {
		return err
	}

	o := &f.options
	parseExcept := func(d corefile.Directive) error {
		zones, err := config.ParseZones(d.Path, d.Args)
		f.except = append(f.except, zones...)
		return err
	}
	parseServerName := func(d corefile.Directive) error {
		o.plainText = false
		return corefile.String(&o.serverName)(d)
	}
	parsePolicy := func(d corefile.Directive) error {
		d.Args = slices.Clone(d.Args)
		d.Args[0].Text = strings.ToLower(d.Args[0].Text)
		return corefile.OneOf(&o.policy, random, roundRobin, sequential)(d)
	}
	parseTLS := func(d corefile.Directive) error { return o.parseTLS(b, d) }

	options := append(more,
		corefile.Option{Usage: "except ZONES...", Set: parseExcept},
		corefile.Option{Usage: "tls [CERT KEY] [CA]", Set: parseTLS},
		corefile.Option{Usage: "tls_servername NAME", Set: parseServerName},
		corefile.Option{Usage: "policy random|round_robin|sequential", Default: random, Set: parsePolicy},
	)

	f.from, err = config.ParseZones(d.Path, d.Args[:1])
	return errors.Join(err, f.parseTo(b, d, parseDestination), d.Options(options...), o.checkConflicts(d))
}

// parse reads a forward directive.
func (f *Forward) parse(b *config.Block, d corefile.Directive) error {
	return f.parseWith(b, d, parseDestination, f.ownOptions(b)...)
}

// ownOptions returns the options that grpc does not have.
func (f *Forward) ownOptions(b *config.Block) []corefile.Option {
	o := &f.options
	parseFallback := func(d corefile.Directive) error { return f.parseFallback(b, d) }
	parseReadTimeout := corefile.Duration(&o.readTimeout, 10*time.Millisecond, time.Minute)
	parseLetterCase := corefile.OneOf(&o.letterCase, "auto", "off")

	return []corefile.Option{
		{Usage: "force_tcp", Set: corefile.Flag(&o.forceTCP)},
		{Usage: "prefer_udp", Set: corefile.Flag(&o.preferUDP)},
		{Usage: "prefer_tcp", Set: corefile.Flag(&o.preferTCP)},
		{Usage: "attempts N", Default: strconv.Itoa(maxSends), Set: corefile.Int(&o.maxSends, 1, maxSends)},
		{Usage: "fallback TO...", Set: parseFallback},
		{Usage: "expire DURATION", Default: "10s", Set: corefile.Duration(&o.expire, 0, oneDay)},
		{Usage: "max_age DURATION", Set: corefile.Duration(&o.maxAge, 0, 365*oneDay)},
		{Usage: "max_idle_conns N", Default: "0", Set: corefile.Int(&o.maxIdleConns, 0, maxCount)},
		{Usage: "read_timeout DURATION", Default: "2s", Set: parseReadTimeout},
		{Usage: "unanswered DURATION", Default: "5m", Set: corefile.Duration(&o.unanswered, 0, 5*time.Minute)},
		{Usage: "max_fails N", Default: "2", Set: corefile.Int(&o.maxFails, 0, maxCount)},
		{Usage: "max_connect_attempts N", Set: corefile.Int(&o.maxAttempts, 0, maxCount)},
		{Usage: "doh_method GET|POST", Default: "POST", Set: corefile.OneOf(&o.dohMethod, "GET", "POST")},
		{Usage: "case_randomization auto|off", Default: "auto", Set: parseLetterCase},
		{Usage: "health_check DURATION [no_rec] [domain NAME]", Default: "500ms", Set: o.parseCheck},
		{Usage: "max_concurrent N", Default: "0", Set: corefile.Int(&f.limiter.most, 0, 1<<30)},
		{Usage: "next RCODES...", Set: parseCodes(&f.nextCodes)},
		{Usage: "next_on_nodata", Set: corefile.Flag(&f.nextOnNodata)},
		{Usage: "failfast_all_unhealthy_upstreams", Set: corefile.Flag(&o.failfast)},
		{Usage: "failover RCODES...", Set: o.parseFailover},
		{Usage: "source_address IP", Set: o.parseSourceAddress},
		{Usage: "resolver IP[:PORT]...", Set: corefile.Append(&o.resolvers, parseResolver)},
	}
}

// checkConflicts returns an error for options that contradict each other.
func (o *upstreamOptions) checkConflicts(d corefile.Directive) error {
	if o.preferTCP && (o.forceTCP || o.preferUDP) {
		return d.Errorf("prefer_tcp, force_tcp and prefer_udp exclude each other")
	}
	if o.maxAge > 0 && o.maxAge < o.expire {
		return d.Errorf("max_age %v is shorter than expire %v", o.maxAge, o.expire)
	}
	for _, to := range o.destinations {
		if o.serverName != "" && to.serverName != "" {
			return d.Errorf("tls_servername %s excludes the name %%%s in a TO: give one of them",
				o.serverName, to.serverName)
		}
	}
	return nil
}

// parseTo parses the TO arguments and checks the files among them.
func (f *Forward) parseTo(b *config.Block, d corefile.Directive, parseDestination parseDestinationFunc) error {
	var errs []error
	isFile := func(path string) bool {
		info, err := os.Stat(b.Path(path))
		return err == nil && !info.IsDir()
	}
	upstreams := len(f.options.destinations)
	for _, a := range d.Args[1:] {
		p, err := parseDestination(a.Text, isFile)
		if err != nil {
			errs = append(errs, a.Errorf(d.Path, "%w", err))
			continue
		}

		if p.damaged {
			b.Warn(a.Errorf(d.Path, "%q is read as the address %v: write it so", a.Text, p.addr.Addr()))
		}

		upstreams++
		if p.file != "" {
			p.file = b.Path(p.file)
			servers, err := checkResolvConf(b, p.file)
			if err != nil {
				errs = append(errs, a.Errorf(d.Path, "%w", err))
			}
			upstreams += servers - 1
		}
		f.options.destinations = append(f.options.destinations, p)
	}

	if upstreams > maxUpstreams {
		errs = append(errs, d.Errorf("want at most %d upstreams, got %d", maxUpstreams, upstreams))
	}
	return errors.Join(errs...)
}

// checkResolvConf returns the number of name servers in a file, and warns about its damaged lines.
func checkResolvConf(b *config.Block, path string) (servers int, err error) {
	text, err := corefile.Text(path)
	if err != nil {
		return 0, err
	}

	addrs, damaged := parseResolvConf(path, text)
	for _, wrong := range damaged {
		b.Warn(wrong)
	}
	switch {
	case len(addrs) > 0:
	case len(damaged) > 0:
		return 0, damaged[0]
	default:
		err = fmt.Errorf("%s has no nameserver line", path)
	}
	return len(addrs), err
}

// parseFallback adds the upstreams of the option fallback, after all others.
func (f *Forward) parseFallback(b *config.Block, d corefile.Directive) error {
	n := len(f.options.destinations)
	d.Args = append([]corefile.Token{d.Token}, d.Args...) // parseTo skips FROM
	err := f.parseTo(b, d, parseDestination)
	for i := range f.options.destinations[n:] {
		f.options.destinations[n+i].fallback = true
	}
	return err
}

// parseFailover reads failover RCODES....
func (o *upstreamOptions) parseFailover(d corefile.Directive) error {
	err := parseCodes(&o.failover)(d)
	if err == nil && slices.Contains(o.failover, wire.NoError) {
		err = d.Errorf("NOERROR cannot be used in failover")
	}
	return err
}

// parseSourceAddress reads source_address IP.
func (o *upstreamOptions) parseSourceAddress(d corefile.Directive) error {
	addr, err := netip.ParseAddr(d.Args[0].Text)
	if err != nil {
		return d.Errorf("want an IP address, got %q", d.Args[0].Text)
	}
	o.sourceAddress = addr.Unmap()
	return nil
}

// parseCheck reads health_check DURATION [no_rec] [domain NAME].
func (o *upstreamOptions) parseCheck(d corefile.Directive) error {
	args := d.Args
	d.Args = args[:1]
	if err := corefile.Duration(&o.check.interval, 10*time.Millisecond, oneDay)(d); err != nil {
		return err
	}

	for i := 1; i < len(args); i++ {
		switch {
		case args[i].Text == "no_rec":
			o.check.noRec = true
		case args[i].Text == "domain" && i+1 < len(args):
			i++
			name, err := wire.ParseName(args[i].Text)
			if err != nil {
				return d.Errorf("%w", err)
			}
			o.check.domain = name
		default:
			return d.Errorf("want no_rec or domain NAME, got %q", args[i].Text)
		}
	}
	return nil
}

// parseCodes returns a function that adds the arguments to *to.
func parseCodes(to *[]wire.RCode) func(corefile.Directive) error {
	return func(d corefile.Directive) error {
		var errs []error
		for _, a := range d.Args {
			code, ok := parseCode(a.Text)
			if !ok {
				errs = append(errs, a.Errorf(d.Path,
					"want response codes such as SERVFAIL or NXDOMAIN, got %q", a.Text))
			}
			if !slices.Contains(*to, code) {
				*to = append(*to, code)
			}
		}
		return errors.Join(errs...)
	}
}

func parseCode(s string) (wire.RCode, bool) {
	s = strings.ToUpper(s)
	if n, err := strconv.ParseUint(strings.TrimPrefix(s, "RCODE"), 10, 12); err == nil {
		return wire.RCode(n), true
	}
	return wire.ParseRCode(s)
}

func parseResolver(text string) (netip.AddrPort, error) {
	host, port := text, "53"
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	}
	addr, err := netip.ParseAddrPort(net.JoinHostPort(corefile.Unbracketed(host), port))
	if err != nil {
		return addr, fmt.Errorf("want IP or IP:PORT, got %q", text)
	}
	return addr, nil
}

// parseTLS reads tls [CERT KEY] [CA].
func (o *upstreamOptions) parseTLS(b *config.Block, d corefile.Directive) error {
	var texts [][]byte
	hash := sha256.New()
	for _, a := range d.Args {
		file := b.Path(a.Text)
		text, err := corefile.Text(file)
		if err != nil {
			return d.Errorf("%w", err)
		}
		texts = append(texts, text)
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", file, len(text), text)
	}

	if len(d.Args) > 1 {
		b.WarnExposed(d, b.Path(d.Args[1].Text))
	}

	o.plainText = false
	o.tls = tlsOptions{&tls.Config{MinVersion: tls.VersionTLS12}, fmt.Sprintf("%x", hash.Sum(nil))}
	if n := len(texts); n%2 == 1 {
		pool, err := certpool.Parse(b.Path(d.Args[n-1].Text), texts[n-1])
		if err != nil {
			return d.Errorf("%w", err)
		}
		o.tls.RootCAs = pool
	}
	if len(texts) >= 2 {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return d.Errorf("%w", err)
		}
		o.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}
