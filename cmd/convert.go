package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/convert"
	"github.com/seamark/seamark/compat/dnsmasq"
	kubednscompat "github.com/seamark/seamark/compat/kubedns"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/spf13/cobra"
)

// maxManifests is the most bytes of a file: a cluster's pods, some hundred times.
const maxManifests = 64 << 20

func (p *program) convertCommand() *cobra.Command {
	var name string
	var follow bool
	c := &cobra.Command{
		Use:   "convert [FILE…] [-- PROGRAM ARGUMENTS…]",
		Short: "Make a Corefile of kube-dns's ConfigMap and flags, and of dnsmasq's options",
		Long: `Convert prints the Corefile that does what a kube-dns pod does: kube-dns itself,
dnsmasq-nanny or dnsmasq in front of it, and the ConfigMap that they read. FILE is a
manifest in YAML or JSON, "-" for standard input, or a directory that the ConfigMap is
mounted in. The pod is that of a Deployment, DaemonSet, ReplicaSet or Pod; a command
line behind -- may stand in its place, with its environment. What the ConfigMap says
is written out if it is given; else the Corefile follows it. Comments at the top say
what is not carried over. Nothing is asked of a cluster.`,
		Example: `  kubectl -n kube-system get deployment,configmap -o yaml | seamark convert - >Corefile
  seamark convert kube-dns.yaml
  seamark convert configmap.yaml -- kube-dns --domain=cluster.local. --config-dir=/kube-dns-config
  seamark convert -- dnsmasq --cache-size=1000 --server=192.0.2.53`,
		RunE: func(c *cobra.Command, args []string) error {
			files, line := args, []string(nil)
			if at := c.ArgsLenAtDash(); at >= 0 {
				files, line = args[:at], args[at:]
				if len(line) == 0 {
					return errors.New("want a command line behind --")
				}
			}
			if len(files)+len(line) == 0 {
				return errors.New("want a file, - for standard input, or a command line behind --")
			}
			text, err := p.convert(files, line, name, follow)
			if err == nil {
				_, err = io.WriteString(p.out, text)
			}
			if err != nil {
				return failure{err}
			}
			return nil
		},
	}
	c.Flags().StringVar(&name, "config-map", "", "`[NAMESPACE/]NAME` of the ConfigMap; else the one that the pod reads, or kube-dns")
	c.Flags().BoolVar(&follow, "follow", false, "let the Corefile follow the ConfigMap even if it is given")
	return c
}

// convert gives the Corefile for files and a command line.
func (p *program) convert(files, line []string, name string, follow bool) (string, error) {
	var objects convert.Objects
	var errs []error
	for _, file := range files {
		errs = append(errs, p.readObjects(&objects, file))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	pod, err := podOf(objects, line)
	if err != nil {
		return "", err
	}
	var conversion convert.Conversion
	conversion.From, conversion.Notes = pod.Place, pod.Notes
	read := "kube-dns" // the ConfigMap's name
	for _, program := range slices.Backward(pod.Programs) {
		part, config, err := p.part(program)
		errs = append(errs, err)
		read = cmp.Or(config, read)
		conversion.Parts = slices.Insert(conversion.Parts, 0, part)
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	namespace, short, found := strings.Cut(cmp.Or(name, read), "/")
	if !found {
		namespace, short = cmp.Or(pod.Namespace, "kube-system"), namespace
	}
	config, ok, err := objects.Config(namespace, short)
	switch {
	case err != nil:
		return "", err
	case ok && !follow:
		conversion.Config = &config
	case !ok && name != "":
		return "", fmt.Errorf("no ConfigMap %s among what was given", short)
	case !ok && len(pod.Programs) == 0:
		return "", fmt.Errorf("neither a pod with kube-dns or dnsmasq nor a ConfigMap %s among what was given", short)
	}
	if len(pod.Programs) == 0 {
		line := []string{"--config-map-namespace=" + namespace, "--config-map=" + short}
		if config.Name == "" {
			line = []string{"--config-dir=" + config.Place}
		}
		part, _, err := p.part(convert.Program{Name: convert.KubeDNS, Args: line})
		if err != nil {
			return "", err
		}
		conversion.Parts = []convert.Part{part}
		conversion.From = "no pod, but the defaults of kube-dns's flags"
	}
	for _, d := range p.directives {
		conversion.Order = append(conversion.Order, d.Name)
	}
	return conversion.Corefile()
}

// podOf is the pod that was given, or one for a command line.
func podOf(objects convert.Objects, line []string) (convert.Pod, error) {
	pod, err := objects.Pod()
	if err != nil || len(line) == 0 {
		return pod, err
	}
	program, ok := convert.Command(line)
	switch {
	case !ok || program.Name == convert.Sidecar:
		return pod, fmt.Errorf("%s answers no questions: want kube-dns, dnsmasq-nanny or dnsmasq behind --", line[0])
	case pod.Place != "":
		return pod, fmt.Errorf("%s and a command line: give one of them", pod.Place)
	}
	return convert.Pod{Place: "a command line", Programs: []convert.Program{program}}, nil
}

// readObjects adds what is in a file or directory.
func (p *program) readObjects(o *convert.Objects, file string) error {
	in, name := p.in, "(standard input)"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			data, err := kubedns.ReadDirectory(file)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			o.Configs = append(o.Configs, convert.ConfigMap{Place: file, Data: data})
			return nil
		}
		in, name = f, file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifests+1))
	if err != nil {
		return err
	}
	if len(text) > maxManifests {
		return fmt.Errorf("read %s: larger than %d MB", name, maxManifests>>20)
	}
	return o.Read(name, text)
}

// part is what a program's command line means, and the ConfigMap that it reads, as
// far as that has a name.
func (p *program) part(program convert.Program) (part convert.Part, config string, err error) {
	part.Program = program
	switch program.Name {
	case convert.KubeDNS:
		config, err = p.kubednsPart(&part)
	case convert.Nanny:
		config, err = p.nannyPart(&part)
	case convert.Dnsmasq:
		// Its defaults are those of a nanny that follows nothing.
		err = dnsmasqPart(&part, program.Args, dnsmasq.Environment{Lameduck: 5 * time.Second})
	}
	if err != nil {
		var lines []string
		for line := range strings.Lines(err.Error()) {
			lines = append(lines, program.Called()+": "+strings.TrimSuffix(line, "\n"))
		}
		err = errors.New(strings.Join(lines, "\n"))
	}
	return part, config, err
}

// parseLine reads the flags of a command line as the command itself would.
func parseLine(c *cobra.Command, args []string) error {
	root := &cobra.Command{Use: "seamark"}
	root.AddCommand(c)
	return c.ParseFlags(long(root, append([]string{c.Name()}, args...))[1:])
}

func (p *program) kubednsPart(part *convert.Part) (config string, err error) {
	flags := kubednscompat.DefaultFlags()
	c := &cobra.Command{Use: convert.KubeDNS}
	var verbosity int
	kubednsFlags(c, &flags)
	klogFlags(c, &verbosity)
	if err := parseLine(c, part.Args); err != nil {
		return "", err
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		return "", fmt.Errorf("unknown word %q", rest[0])
	}
	getenv := os.Getenv
	if part.Container != "" {
		getenv = part.Getenv
	}
	part.Text, part.Notes, err = flags.Corefile(getenv)
	part.Runs = logging(c)
	switch {
	case flags.ConfigMap != "":
		config = flags.ConfigMapNamespace + "/" + flags.ConfigMap
	case flags.ConfigDir != "":
		config = part.Mounts[flags.ConfigDir]
	}
	return config, err
}

func (p *program) nannyPart(part *convert.Part) (config string, err error) {
	c := p.nannyCommand()
	if err := parseLine(c, part.Args); err != nil {
		return "", err
	}
	f := c.Flags()
	if err := c.Args(c, f.Args()); err != nil {
		return "", err
	}
	// The names and types are those of nannyCommand.
	var n nanny
	n.configDir, _ = f.GetString("configDir")
	n.resolver, _ = f.GetString("kubednsServer")
	n.restart, _ = f.GetBool("restartDnsmasq")
	n.sync, _ = f.GetDuration("syncInterval")
	n.lameduck, _ = f.GetDuration("lameduck")
	n.statistics, _ = f.GetDuration("logInterval")
	if err := n.check(); err != nil {
		return "", err
	}
	if !n.restart && n.configDir != "" {
		part.Notes = append(part.Notes, "without -restartDnsmasq a change of the ConfigMap is told and not served; kubedns_config serves it")
	}
	if n.statistics > 0 {
		part.Notes = append(part.Notes, "-logInterval is for the log of the nanny: chaos and prometheus tell the numbers of a server")
	}
	part.Runs = logging(c)
	return part.Mounts[n.configDir], dnsmasqPart(part, f.Args(), dnsmasq.Environment{ConfigMap: n.configDir, Period: n.sync, Resolver: n.resolver, Lameduck: n.lameduck})
}

// dnsmasqPart is what dnsmasq's options mean. The files that they name are read
// where they are, but for one that belongs to this machine and not to a container.
func dnsmasqPart(part *convert.Part, args []string, at dnsmasq.Environment) error {
	at.Interfaces = interfaces()
	if part.Container != "" {
		at.Interfaces = []string{"lo", "eth0"} // a pod's
		args = append([]string{"--conf-file="}, args...)
	}
	options, err := dnsmasq.Parse(args)
	if err != nil {
		return err
	}
	part.Notes = append(part.Notes, options.Notes...)
	if options.PIDFile != "" {
		part.Notes = append(part.Notes, "--pid-file: it is seamark's own flag -pidfile that writes one")
	}
	part.Runs = append(part.Runs, running(args)...)
	part.Text, err = options.Corefile(at)
	return err
}

// running are those of dnsmasq's options that say how the process runs, and nothing
// of what it answers.
func running(args []string) (own []string) {
	names := []string{"keep-in-foreground", "no-daemon", "user", "group", "log-facility", "log-async", "test"}
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		long := strings.HasPrefix(arg, "--") && slices.Contains(names, name)
		short := len(arg) > 1 && arg[0] == '-' && strings.IndexByte("kdug8", arg[1]) >= 0
		if long || short {
			own = append(own, arg)
		}
	}
	return own
}

// logging are the given flags that say how a program logs.
func logging(c *cobra.Command) (given []string) {
	names := []string{"v"}
	for _, k := range klogIgnored {
		names = append(names, k.name)
	}
	for _, name := range names {
		if c.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	return given
}
