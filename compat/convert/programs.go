package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/operate/servers"
)

// A Pod is a pod or pod template that contains known programs.
type Pod struct {
	Place     string // for messages: "Deployment kube-system/kube-dns"
	Namespace string
	Programs  []Program
	Notes     []string // about ignored containers

	owners []string // the Places of its owners
}

// A Program is a program with its command line.
type Program struct {
	Name      string
	Container string // "" on a command line
	Args      []string
	Env       map[string]string
	Mounts    map[string]string // mount paths to names of ConfigMaps
	Notes     []string          // about unsupported parts
}

// Label returns the names of the container and the program for messages.
func (p Program) Label() string {
	if p.Container == "" || p.Container == p.Name {
		return p.Name
	}
	return p.Container + " (" + p.Name + ")"
}

// Getenv returns a variable of the program's environment.
func (p Program) Getenv(name string) string { return p.Env[name] }

// Command returns the program that a command line starts, and whether it is known.
// The command line may start with seamark.
func Command(words []string) (Program, bool) {
	name, args := servers.Program(words)
	return Program{Name: name, Args: args}, name != ""
}

// programOf returns the program that a container runs.
func programOf(c servers.Container) (Program, bool) {
	env, notes := map[string]string{}, []string(nil)
	for _, e := range c.Env {
		if len(e.ValueFrom) == 0 {
			env[e.Name] = expand(e.Value, env)
			continue
		}

		delete(env, e.Name)
		isUsed := func(word string) bool { return strings.Contains(word, "$("+e.Name+")") }
		if strings.HasPrefix(e.Name, "PROMETHEUS_") || slices.ContainsFunc(slices.Concat(c.Command, c.Args), isUsed) {
			notes = append(notes, fmt.Sprintf("the value of %s is a reference, which convert cannot resolve", e.Name))
		}
	}

	words := func(all []string) (out []string) {
		for _, w := range all {
			out = append(out, expand(w, env))
		}
		return out
	}

	c.Command, c.Args = words(c.Command), words(c.Args)
	name, args := c.Program()
	return Program{Name: name, Container: c.Name, Args: args, Env: env, Notes: notes}, name != ""
}

// expand replaces $(NAME) in word as the kubelet does, if the variable exists; $$
// becomes $.
func expand(word string, env map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(word, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		word = after
		name, rest, isClosed := strings.Cut(strings.TrimPrefix(word, "("), ")")
		switch value, ok := env[name]; {
		case strings.HasPrefix(word, "$"):
			out.WriteString("$")
			word = word[1:]
		case strings.HasPrefix(word, "(") && isClosed && ok:
			out.WriteString(value)
			word = rest
		default:
			out.WriteString("$")
		}
	}
}

// pod adds a pod if it contains a known DNS server.
func (o *Objects) pod(head object, spec podSpec) {
	p := Pod{Place: head.name(), Namespace: head.Metadata.Namespace}
	volumes := map[string]string{}
	for _, v := range spec.Volumes {
		if v.ConfigMap != nil {
			volumes[v.Name] = v.ConfigMap.Name
		}
	}

	for _, c := range spec.Containers {
		program, ok := programOf(c)
		if !ok {
			note := "is ignored: it runs none of kube-dns's programs"
			if len(c.Command) > 0 && c.IsNamed() {
				note = fmt.Sprintf("is ignored: it runs %s, which is unknown; "+
					"if that starts kube-dns or dnsmasq, write their command line after --", c.Command[0])
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

// answers reports whether the program answers queries.
func (p Program) answers() bool { return p.Name != servers.Sidecar }

// Pod returns the pod of the input. It ignores pods that another object of the input
// owns, and pods with the same programs as an earlier one. Without a pod it returns
// the zero Pod.
func (o Objects) Pod() (Pod, error) {
	var roots []Pod
	for _, p := range o.Pods {
		owned := slices.ContainsFunc(o.Pods, func(other Pod) bool { return slices.Contains(p.owners, other.Place) })
		same := slices.ContainsFunc(roots, func(other Pod) bool { return equal(p.Programs, other.Programs) })
		if !owned && !same {
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
	return Pod{}, fmt.Errorf("%d pods with different DNS servers, %s: remove all but one from the input",
		len(roots), strings.Join(places, ", "))
}

func equal(a, b []Program) bool {
	return slices.EqualFunc(a, b, func(a, b Program) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
}

// Config returns the ConfigMap of that name, in the given namespace if several have
// it. A directory matches every name. ok is false if there is none.
func (o Objects) Config(namespace, name string) (c ConfigMap, ok bool, err error) {
	var found []ConfigMap
	for _, c := range o.Configs {
		if c.Name == name || c.Name == "" {
			found = append(found, c)
		}
	}
	if len(found) > 1 {
		isOther := func(c ConfigMap) bool { return c.Namespace != namespace }
		if own := slices.DeleteFunc(slices.Clone(found), isOther); len(own) > 0 {
			found = own
		}
	}

	switch len(found) {
	case 0:
		return ConfigMap{}, false, nil
	case 1:
		return found[0], true, nil
	}
	var places []string
	for _, c := range found {
		places = append(places, c.Place)
	}
	return ConfigMap{}, false, fmt.Errorf("%d ConfigMaps, %s: remove all but one from the input",
		len(found), strings.Join(places, ", "))
}
