package servers

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// The programs of a kube-dns pod, by the names of Seamark's subcommands that replace them. Seamark replaces dnsmasq
// only behind a nanny.
const (
	KubeDNS = "kube-dns"
	Nanny   = "dnsmasq-nanny"
	Dnsmasq = "dnsmasq"
	Sidecar = "sidecar"
)

// A Container has the fields of a pod's container that say what it runs, and with which files and ports.
type Container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name      string          `json:"name"`
		Value     string          `json:"value"`
		ValueFrom json.RawMessage `json:"valueFrom"`
	} `json:"env"`
	Ports []struct {
		Name          string `json:"name"`
		Protocol      string `json:"protocol"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
	VolumeMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
		SubPath   string `json:"subPath"`
	} `json:"volumeMounts"`
}

// Arguments returns the arguments of the container's program.
func (c Container) Arguments() []string {
	if len(c.Command) > 1 {
		return slices.Concat(c.Command[1:], c.Args)
	}
	return c.Args
}

// Program returns the program of a kube-dns pod that the container runs, and the program's arguments; "" if it runs
// none.
func (c Container) Program() (name string, args []string) {
	name, args = Program(slices.Concat(c.Command, c.Args))
	if len(c.Command) > 0 {
		return name, args
	}

	// The image's entry point gets the arguments. In an image of Seamark the first one is the program.
	switch image, own := known(image(c.Image)), known(c.Name); {
	case image != "":
		return image, c.Args
	case name != "" || own == "":
		return name, args
	case own == Dnsmasq && slices.Contains(c.Args, "--"):
		return Nanny, c.Args
	default:
		return own, c.Args
	}
}

// IsNamed reports whether the name of the container or its image is that of a program of kube-dns.
func (c Container) IsNamed() bool { return known(image(c.Image)) != "" || known(c.Name) != "" }

// Program returns the program of a kube-dns pod that a command line starts, and its arguments; "" if it starts none.
// The command line may begin with seamark.
func Program(words []string) (name string, args []string) {
	if len(words) > 1 && path.Base(words[0]) == "seamark" {
		words = words[1:]
	}
	if len(words) == 0 {
		return "", nil
	}
	return known(words[0]), words[1:]
}

// known returns the program of a file or image name; "" if it is unknown.
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

// image returns the name of a container image without registry, tag and digest.
func image(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	ref, _, _ = strings.Cut(path.Base(ref), ":")
	return ref
}
