package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/document"
	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/kubedns"
	"github.com/seamark/seamark/compat/nanny"
	directive "github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/operate/servers"
	"github.com/spf13/pflag"
)

// maxManifests limits the size of an input file.
const maxManifests = 64 << 20

// An Input is the input of a conversion, as the command line of seamark convert
// names it.
type Input struct {
	Files       []string // manifests, directories with a mounted ConfigMap, or "-"
	Stdin       io.Reader
	CommandLine []string // of a program, in place of a pod
	ConfigMap   string   // [NAMESPACE/]NAME; "" means the ConfigMap that the pod reads
	Follow      bool     // follow the ConfigMap even if its data is in the input
	Directives  []string // the names of all directives in their order
}

// Corefile returns the Corefile that replaces the pod and the ConfigMap in the input.
func (in Input) Corefile() (r Result, err error) {
	var objects Objects
	var errs []error
	for _, file := range in.Files {
		errs = append(errs, in.read(&objects, file))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err
	}

	pod, err := in.pod(objects)
	if err != nil {
		return r, err
	}

	conversion := Conversion{From: pod.Place, Notes: pod.Notes, Order: in.Directives}
	read := "kube-dns" // the name of the ConfigMap that the pod reads
	for _, program := range slices.Backward(pod.Programs) {
		part, config, err := translate(program)
		errs = append(errs, err)
		read = cmp.Or(config, read)
		conversion.Parts = slices.Insert(conversion.Parts, 0, part)
	}

	if err := errors.Join(errs...); err != nil {
		return r, err
	}

	namespace, name, found := strings.Cut(cmp.Or(in.ConfigMap, read), "/")
	if !found {
		namespace, name = cmp.Or(pod.Namespace, "kube-system"), namespace
	}

	config, ok, err := objects.Config(namespace, name)
	switch {
	case err != nil:
		return r, err
	case ok && !in.Follow:
		conversion.Config = &config
	case !ok && in.ConfigMap != "":
		return r, fmt.Errorf("no ConfigMap %s in the input", name)
	case !ok && len(pod.Programs) == 0:
		return r, fmt.Errorf("neither a pod with kube-dns or dnsmasq nor a ConfigMap %s in the input", name)
	}

	if len(pod.Programs) == 0 {
		args := []string{"--config-map-namespace=" + namespace, "--config-map=" + name}
		if config.Name == "" {
			args = []string{"--config-dir=" + config.Place}
		}
		part, _, err := translate(Program{Name: servers.KubeDNS, Args: args})
		if err != nil {
			return r, err
		}
		conversion.Parts = []Part{part}
		conversion.From = "the defaults of kube-dns's flags, without a pod"
	}
	return conversion.Corefile()
}

// pod returns the pod in the input, or one for the command line.
func (in Input) pod(objects Objects) (Pod, error) {
	pod, err := objects.Pod()
	if err != nil || len(in.CommandLine) == 0 {
		return pod, err
	}
	program, ok := Command(in.CommandLine)
	switch {
	case !ok || program.Name == servers.Sidecar:
		return pod, fmt.Errorf("%s answers no queries: want kube-dns, dnsmasq-nanny or dnsmasq after --",
			in.CommandLine[0])
	case pod.Place != "":
		return pod, fmt.Errorf("the input has both %s and a command line: remove one of them", pod.Place)
	}
	return Pod{Place: "a command line", Programs: []Program{program}}, nil
}

// read adds the objects in a file or directory.
func (in Input) read(o *Objects, file string) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		data, err := directive.ReadDirectory(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		o.Configs = append(o.Configs, ConfigMap{Place: file, Data: data})
		return nil
	}
	name, text, err := document.Read(file, in.Stdin, maxManifests)
	if err != nil {
		return err
	}
	return o.Read(name, text)
}

// translate returns the Corefile for a program's command line and the name of the
// ConfigMap that the program reads, if it is known.
func translate(program Program) (part Part, config string, err error) {
	part.Program = program
	switch program.Name {
	case servers.KubeDNS:
		config, err = part.kubeDNS()
	case servers.Nanny:
		config, err = part.nanny()
	case servers.Dnsmasq:
		err = part.dnsmasq(program.Args, dnsmasq.Environment{Lameduck: 5 * time.Second}) // the nanny's default
	}
	return part, config, prefixLines(program.Label()+": ", err)
}

// prefixLines returns err with prefix before each line.
func prefixLines(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
}

// parseFlags parses the program's command line and returns its arguments. The program may be Seamark's, which has the
// flag --admin as well.
func (p *Part) parseFlags(set *pflag.FlagSet) (rest []string, err error) {
	admin := set.StringArray("admin", nil, "")
	set.SetOutput(io.Discard)
	if err := set.Parse(flags.LongForm(p.Args, set)); err != nil {
		return nil, err
	}
	if len(*admin) > 0 {
		p.Notes = append(p.Notes, "the Corefile has no directive admin: seamark serve has the flag --admin, too")
	}
	return set.Args(), nil
}

func (p *Part) kubeDNS() (config string, err error) {
	f := kubedns.DefaultFlags()
	set := pflag.NewFlagSet(servers.KubeDNS, pflag.ContinueOnError)
	f.AddFlags(set)
	klog := flags.AddKlog(set)
	rest, err := p.parseFlags(set)
	if err != nil {
		return "", err
	}
	if len(rest) > 0 {
		return "", fmt.Errorf("unknown word %q", rest[0])
	}

	getenv := os.Getenv
	if p.Container != "" {
		getenv = p.Getenv
	}
	text, notes, err := f.Corefile(getenv)
	p.Text, p.Notes = text, append(p.Notes, notes...)
	p.ProcessFlags = klog.Given()
	switch {
	case f.ConfigMap != "":
		config = f.ConfigMapNamespace + "/" + f.ConfigMap
	case f.ConfigDir != "":
		config = p.Mounts[f.ConfigDir]
	}
	return config, err
}

func (p *Part) nanny() (config string, err error) {
	var f nanny.Flags
	set := pflag.NewFlagSet(servers.Nanny, pflag.ContinueOnError)
	f.AddFlags(set)
	klog := flags.AddKlog(set)
	options, err := p.parseFlags(set)
	if err != nil {
		return "", err
	}
	if at := set.ArgsLenAtDash(); at > 0 || at < 0 && len(options) > 0 {
		return "", fmt.Errorf("unknown word %q: write dnsmasq's options after --", options[0])
	}
	if err := f.Check(); err != nil {
		return "", err
	}

	if !f.Restart && f.ConfigDir != "" {
		p.Notes = append(p.Notes, "without -restartDnsmasq the nanny only logs changes of the ConfigMap; "+
			"kubedns_config serves them")
	}
	if f.LogInterval > 0 {
		p.Notes = append(p.Notes, "-logInterval has no counterpart in a Corefile: "+
			"the directives chaos and prometheus export the statistics")
	}
	p.ProcessFlags = klog.Given()
	return p.Mounts[f.ConfigDir], p.dnsmasq(options, f.Environment())
}

// dnsmasq translates dnsmasq's options. It reads configuration files that they name
// on this host, but not the default one, which for a container is in its image.
func (p *Part) dnsmasq(args []string, env dnsmasq.Environment) error {
	env.Interfaces = nanny.Interfaces()
	if p.Container != "" {
		env.Interfaces = []string{"lo", "eth0"} // the interfaces of a pod
		args = append([]string{"--conf-file="}, args...)
	}
	options, err := dnsmasq.Parse(args)
	if err != nil {
		return err
	}
	p.Notes = append(p.Notes, options.Notes...)
	if options.PIDFile != "" {
		p.Notes = append(p.Notes, "--pid-file: use the flag -pidfile of seamark")
	}
	p.ProcessFlags = append(p.ProcessFlags, processOptions(args)...)
	p.Text, err = options.Corefile(env)
	return err
}

// processOptions returns the options of dnsmasq that affect the process and not its
// answers.
func processOptions(args []string) (found []string) {
	names := []string{"keep-in-foreground", "no-daemon", "user", "group", "log-facility", "log-async", "test"}
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		long := strings.HasPrefix(arg, "--") && slices.Contains(names, name)
		short := len(arg) > 1 && arg[0] == '-' && strings.IndexByte("kdug8", arg[1]) >= 0
		if long || short {
			found = append(found, arg)
		}
	}
	return found
}
