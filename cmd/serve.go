package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

// serve holds the flags of the command serve.
type serve struct {
	conf, manifests string
	listen          []string
	port            flags.Port
	pidfile         string
	logFormat       string
	quiet           bool
}

func (s *serve) flags(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&s.conf, "conf", "",
		`Corefile to load, "stdin" or "-" for standard input (default "Corefile" if it exists)`)
	f.StringVar(&s.manifests, "manifests", "",
		"serve the cluster described by the YAML and JSON files of this folder, without a Corefile")
	f.StringArrayVar(&s.listen, "listen", nil,
		"`ADDRESS:PORT` to listen on, in place of the addresses in the Corefile; may be repeated")
	portFlag(c, &s.port)
	f.StringVar(&s.pidfile, "pidfile", "", "write the process id to this file")
	f.StringVar(&s.logFormat, "log-format", "text",
		"`FORMAT` of all log messages and of the directives log and errors: text or json")
	f.BoolVar(&s.quiet, "quiet", false, "do not print the zones and addresses at the start")
}

func portFlag(c *cobra.Command, p *flags.Port) {
	*p = 53
	c.Flags().VarP(p, "dns.port", "p", "`PORT` of server blocks without one")
}

func (p *program) serveCommand() *cobra.Command {
	var s serve
	c := &cobra.Command{
		Use:   "serve",
		Short: "Answer queries (the default without a subcommand)",
		Long: `Serve answers queries until SIGTERM or SIGINT. The Corefile configures it; with
--manifests it needs none. At SIGHUP and SIGUSR1 it reads the Corefile again. If
the new Corefile has an error, serve logs it and continues with the old one.

SIGTERM and SIGINT start the shutdown, with lameduck if the Corefile has it; a
second one ends the process at once. SIGQUIT skips lameduck; with GOTRACEBACK in
the environment it prints the stacks of all goroutines.`,
		Example: `  seamark serve --conf Corefile
  seamark serve --conf Corefile --listen 127.0.0.1:1053
  seamark serve --manifests examples --listen 127.0.0.1:1053`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.serve(c.Context(), s) },
	}
	s.flags(c)
	p.admin.flag(c)
	return c
}

func (p *program) serve(ctx context.Context, s serve) error {
	if s.conf != "" && s.manifests != "" {
		return errors.New("set only one of --manifests and --conf;" +
			` in a Corefile, write "manifests DIR" into the kubernetes block`)
	}
	if err := oneOf("log-format", s.logFormat, "text", "json"); err != nil {
		return err
	}
	out := newOutput(p.log())
	defer out.Stop()

	level := new(slog.LevelVar)
	log, greet := server.NewLog(out, level), io.Writer(out)
	if s.logFormat == "json" {
		log = server.NewJSONLog(out, level)
		greet = slogLines{log}
	}

	options := p.options(log)
	options.JSONLog = s.logFormat == "json"
	options.Port, options.Level = uint16(s.port), level
	for _, text := range s.listen {
		addr, err := netip.ParseAddrPort(text)
		if err != nil {
			return fmt.Errorf("--listen: want ADDRESS:PORT, got %q", text)
		}
		if slices.Contains(options.Listen, addr) {
			return fmt.Errorf("--listen: %s is given twice", addr)
		}
		options.Listen = append(options.Listen, addr)
	}

	var err error
	if options.Inherited, err = server.InheritSockets(); err != nil {
		return failure{err}
	}
	read, err := p.reader(s)
	if err != nil {
		return failure{err}
	}

	r := server.Run{Options: options, Greeting: p.build.String(), Signals: p.signals, PIDFile: s.pidfile}
	if s.manifests != "" {
		r.Try = []string{"dns-version.cluster.local TXT", "cluster.local SOA"} // these exist without Services too
	}
	if !s.quiet {
		r.Out = greet
	}

	if s.conf == "" && s.manifests == "" && !exists(defaultFile) {
		log.Warn("No Corefile in this directory: answering every query with the client's address, as CoreDNS does")
		if err := p.serves(ctx, &r, read); err != nil {
			return failure{fmt.Errorf("%w\n%s", err, p.asTyped(usual))}
		}
		return nil
	}
	return p.serves(ctx, &r, read)
}

// slogLines writes each line of a text as a message.
type slogLines struct{ log *slog.Logger }

func (l slogLines) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info(line)
		}
	}
	return len(text), nil
}

// usual is advice for users that start the program without arguments.
const usual = `There is no file Corefile in this directory. These commands serve other data:
  seamark serve --manifests FOLDER --listen 127.0.0.1:1053   a folder of Kubernetes manifests
  seamark -conf FILE                                         your Corefile
See seamark --help.`

// defaultFile is the Corefile that is read if the command line names none.
const defaultFile = "Corefile"

// fallback is the Corefile that CoreDNS uses if there is none.
const fallback = ". {\n    whoami\n    log\n}\n"

// reader returns a function that reads the Corefile. It is called at the start
// and at each reload.
func (p *program) reader(s serve) (func() corefile.Reading, error) {
	file, text := s.conf, ""
	switch {
	case s.manifests != "":
		if err := (cluster.Options{Manifests: s.manifests}).CheckFiles(); err != nil {
			return nil, fmt.Errorf("--%w", err)
		}
		word, err := corefile.Word(s.manifests)
		if err != nil {
			return nil, fmt.Errorf("--manifests: %w", err)
		}
		file, text = "(--manifests)", fmt.Sprintf(folder, word)
	case file == "stdin", file == "-":
		file = "stdin"
		all, err := corefile.TextFrom(file, p.in)
		if err != nil {
			return nil, fmt.Errorf("reading the Corefile: %w", err)
		}
		text = string(all)
	case file == "":
		file = defaultFile
		if !exists(file) {
			file, text = "(no Corefile)", fallback
		}
	}

	if text == "" && file != "stdin" {
		return func() corefile.Reading { return corefile.Read(file) }, nil
	}
	return func() corefile.Reading { return corefile.ReadText(file, []byte(text)) }, nil
}

// folder is the Corefile of --manifests.
const folder = `. {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        manifests %s
    }
}
`
