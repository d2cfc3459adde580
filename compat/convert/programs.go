package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// The programs of a kube-dns pod, by the names that they are called by.
const (
	KubeDNS = "kube-dns"
	Nanny   = "dnsmasq-nanny"
	Dnsmasq = "dnsmasq"
	Sidecar = "sidecar"
)

// A Pod is one, or the template of some, with programs in it that are known.
type Pod struct {
	Place     string // for messages: "Deployment kube-system/kube-dns"
	Namespace string
	Programs  []Program
	Notes     []string // what of its containers is not looked at

	owners []string // Places of those that made it
}

// A Program is one with its command line.
type Program struct {
	Name      string
	Container string // "" on a command line
	Args      []string
	Env       map[string]string
	Mounts    map[string]string // paths to the names of the ConfigMaps that are mounted there
	Notes     []string          // what of it is not understood
}

// Called is the program for messages.
func (p Program) Called() string {
	if p.Container == "" || p.Container == p.Name {
		return p.Name
	}
	return p.Container + " (" + p.Name + ")"
}

// Getenv gives a variable of the program's environment.
func (p Program) Getenv(name string) string { return p.Env[name] }

// known is the program that a word stands for: the name of a file or of an image.
func known(word string) string {
	word = strings.TrimSuffix(path.Base(word), ".exe")
	for _, arch := range [...]string{"-amd64", "-arm64", "-arm", "-ppc64le", "-s390x"} {
		word = strings.TrimSuffix(word, arch)
	}
	switch strings.TrimPrefix(word, "k8s-dns-") {
	case "kube-dns", "kubedns":
		return KubeDNS
	case "dnsmasq-nanny":
		return Nanny
	case "dnsmasq", "kube-dnsmasq":
		return Dnsmasq
	case "sidecar":
		return Sidecar
	}
	return ""
}

// Command is the program that a command line calls, and whether it is known. The
// program of this repository may stand before it.
func Command(words []string) (Program, bool) {
	if len(words) > 1 && path.Base(words[0]) == "seamark" {
		words = words[1:]
	}
	if len(words) == 0 {
		return Program{}, false
	}
	p := Program{Name: known(words[0]), Args: words[1:]}
	return p, p.Name != ""
}

// program is what a container runs.
func (c container) program() (Program, bool) {
	env, notes := map[string]string{}, []string(nil)
	for _, e := range c.Env {
		env[e.Name] = expand(e.Value, env)
		if len(e.ValueFrom) > 0 && strings.HasPrefix(e.Name, "PROMETHEUS_") {
			notes = append(notes, fmt.Sprintf("the value of %s comes from elsewhere and is not known here", e.Name))
		}
	}
	words := func(all []string) (out []string) {
		for _, w := range all {
			out = append(out, expand(w, env))
		}
		return out
	}
	command, args := words(c.Command), words(c.Args)
	p, ok := Command(append(slices.Clone(command), args...))
	if len(command) == 0 {
		// The image has a program of its own, and args are its words; an image of
		// this repository's has the name of one for its first.
		if image := known(image(c.Image)); image != "" {
			p, ok = Program{Name: image, Args: args}, true
		} else if own := known(c.Name); !ok && own != "" {
			p, ok = Program{Name: own, Args: args}, true
			if own == Dnsmasq && slices.Contains(args, "--") {
				p.Name = Nanny
			}
		}
	}
	p.Container, p.Env, p.Notes = c.Name, env, notes
	return p, ok
}

// image is a container image without its registry, tag and digest.
func image(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	ref, _, _ = strings.Cut(path.Base(ref), ":")
	return ref
}

// expand puts variables into a word as the kubelet does: $(NAME), where it is known;
// $$ is a $.
func expand(word string, env map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(word, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		word = after
		name, rest, closed := strings.Cut(strings.TrimPrefix(word, "("), ")")
		switch value, there := env[name]; {
		case strings.HasPrefix(word, "$"):
			out.WriteString("$")
			word = word[1:]
		case strings.HasPrefix(word, "(") && closed && there:
			out.WriteString(value)
			word = rest
		default:
			out.WriteString("$")
		}
	}
}

// pod takes one, if a known program is in it.
func (o *Objects) pod(head object, spec podSpec) {
	p := Pod{Place: head.name(), Namespace: head.Metadata.Namespace}
	volumes := map[string]string{}
	for _, v := range spec.Volumes {
		if v.ConfigMap != nil {
			volumes[v.Name] = v.ConfigMap.Name
		}
	}
	for _, c := range spec.Containers {
		program, ok := c.program()
		if !ok {
			note := "is none of kube-dns's programs: it is not looked at"
			if len(c.Command) > 0 && (known(image(c.Image)) != "" || known(c.Name) != "") {
				note = fmt.Sprintf("runs %s, and what that runs is not known here: give its command line behind --", c.Command[0])
			}
			p.Notes = append(p.Notes, fmt.Sprintf("container %s %s", c.Name, note))
			continue
		}
		program.Mounts = map[string]string{}
		for _, m := range c.VolumeMounts {
			if name := volumes[m.Name]; name != "" {
				program.Mounts[m.MountPath] = name
			}
		}
		p.Programs = append(p.Programs, program)
	}
	if !slices.ContainsFunc(p.Programs, Program.answers) {
		return
	}
	for _, r := range head.Metadata.OwnerReferences {
		var owner object
		owner.Kind, owner.Metadata.Name, owner.Metadata.Namespace = r.Kind, r.Name, head.Metadata.Namespace
		p.owners = append(p.owners, owner.name())
	}
	o.Pods = append(o.Pods, p)
}

// answers says whether the program answers questions.
func (p Program) answers() bool { return p.Name != Sidecar }

// Pod gives the pod that is meant: the only one, besides those that it makes and
// those that are the same. Without any it is a zero Pod.
func (o Objects) Pod() (Pod, error) {
	var roots []Pod
	for _, p := range o.Pods {
		made := slices.ContainsFunc(o.Pods, func(other Pod) bool { return slices.Contains(p.owners, other.Place) })
		same := slices.ContainsFunc(roots, func(other Pod) bool { return equal(p.Programs, other.Programs) })
		if !made && !same {
			roots = append(roots, p)
		}
	}
	switch len(roots) {
	case 0:
		return Pod{}, nil
	case 1:
		return roots[0], nil
	}
	var places []string
	for _, p := range roots {
		places = append(places, p.Place)
	}
	return Pod{}, fmt.Errorf("%d pods with DNS servers that differ, %s: give one of them", len(roots), strings.Join(places, ", "))
}

func equal(a, b []Program) bool {
	return slices.EqualFunc(a, b, func(a, b Program) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
}

// Config gives the ConfigMap with a name, in a namespace if more than one has it.
// ok is false if there is none. A directory is the one that is meant whatever it is
// called.
func (o Objects) Config(namespace, name string) (c ConfigMap, ok bool, err error) {
	var all []ConfigMap
	for _, c := range o.Configs {
		if c.Name == name || c.Name == "" {
			all = append(all, c)
		}
	}
	if len(all) > 1 {
		if own := slices.DeleteFunc(slices.Clone(all), func(c ConfigMap) bool { return c.Namespace != namespace }); len(own) > 0 {
			all = own
		}
	}
	switch len(all) {
	case 0:
		return ConfigMap{}, false, nil
	case 1:
		return all[0], true, nil
	}
	var places []string
	for _, c := range all {
		places = append(places, c.Place)
	}
	return ConfigMap{}, false, fmt.Errorf("%d ConfigMaps, %s: give one of them", len(all), strings.Join(places, ", "))
}
