package resolvconf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster/document"
)

// A Manifest is the DNS settings of a pod in a manifest. Fields are zero if
// absent.
type Manifest struct {
	Name        string // of the object, for messages: "Deployment shop/web"
	Namespace   string
	Policy      Policy
	HostNetwork *bool
	Config      *Config

	file string // as messages name it; "" if there is no manifest
	line int    // the line that an error about policy None names
}

// Flags are defaults for settings that a manifest does not contain.
type Flags struct {
	Namespace   string
	Policy      Policy
	HostNetwork bool
}

// Pod returns the pod of the manifest with the defaults in flags. It returns an
// error if the API server would reject the pod. The comments name flags that the
// manifest overrides.
func (m Manifest) Pod(flags Flags) (Pod, []string, error) {
	p := Pod{
		Namespace:   cmp.Or(m.Namespace, flags.Namespace, "default"),
		Policy:      cmp.Or(m.Policy, flags.Policy, ClusterFirst),
		HostNetwork: flags.HostNetwork,
		Config:      m.Config,
	}
	if m.HostNetwork != nil {
		p.HostNetwork = *m.HostNetwork
	}

	var comments []string
	compare := func(flag, value, used string) {
		if value != "" && value != used {
			comments = append(comments, fmt.Sprintf("--%s %s is ignored: %s sets %s", flag, value, m.Name, used))
		}
	}
	compare("namespace", flags.Namespace, p.Namespace)
	compare("dns-policy", string(flags.Policy), string(p.Policy))
	if flags.HostNetwork && !p.HostNetwork {
		compare("host-network", "true", "false")
	}

	if p.Policy == None && (p.Config == nil || len(p.Config.Nameservers) == 0) {
		if m.file == "" {
			return Pod{}, nil, fmt.Errorf("dnsPolicy %s needs a dnsConfig with at least one nameserver:"+
				" set a manifest with --pod", None)
		}
		return Pod{}, nil, fmt.Errorf("%s:%d: %s: dnsPolicy %s needs a dnsConfig with at least one nameserver",
			m.file, m.line, m.Name, None)
	}
	return p, comments, nil
}

// paths are the paths to the pod's spec in objects of Kubernetes' own kinds.
var paths = map[string][]string{
	"Pod":                   {"spec"},
	"PodTemplate":           {"template", "spec"},
	"Deployment":            {"spec", "template", "spec"},
	"StatefulSet":           {"spec", "template", "spec"},
	"DaemonSet":             {"spec", "template", "spec"},
	"ReplicaSet":            {"spec", "template", "spec"},
	"ReplicationController": {"spec", "template", "spec"},
	"Job":                   {"spec", "template", "spec"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template", "spec"},
}

// An object is an object with a pod or a pod template.
type object struct {
	document.Value
	kind string
	path []string // path of the pod's spec
}

// ParseManifest parses the pod or pod template of a manifest in YAML or JSON,
// which may contain lists and several documents but only one object with a pod.
// Unknown kinds count if they have containers at the path of a known kind. The
// error joins all reasons why the API server would reject the pod's DNS settings.
func ParseManifest(file string, text []byte) (Manifest, []string, error) {
	docs, err := document.Parse(file, text)
	if err != nil {
		return Manifest{}, nil, err
	}

	f := finder{file: file}
	for _, doc := range docs {
		f.look(doc)
	}

	switch {
	case len(f.errs) > 0:
		return Manifest{}, nil, errors.Join(f.errs...)
	case len(f.pods) == 0:
		return Manifest{}, nil, fmt.Errorf("%s: no pod or pod template, only %s:"+
			" want a Pod, Deployment, StatefulSet, DaemonSet, Job or CronJob",
			file, f.seen())
	case len(f.pods) > 1:
		var all []string
		for _, o := range f.pods {
			all = append(all, fmt.Sprintf("%s (line %d)", o.name(), o.Line))
		}
		return Manifest{}, nil, fmt.Errorf("%s: %d objects with pods, %s: keep one in the file,"+
			" or pipe one (kubectl get ... -o yaml | seamark resolvconf --pod -)",
			file, len(all), strings.Join(all, ", "))
	}

	r := reader{file: file, object: f.pods[0]}
	m := r.manifest()
	if len(r.errs) > 0 {
		return Manifest{}, r.misplaced(), errors.Join(r.errs...)
	}
	return m, r.misplaced(), nil
}

// FindPod parses the Pod with that name among the objects of a manifest. address is its IP
// address, "" if it has none. ok is false if the manifest does not have the Pod.
func FindPod(file string, text []byte, namespace, name string) (m Manifest, address string, ok bool, err error) {
	docs, err := document.Parse(file, text)
	if err != nil {
		return Manifest{}, "", false, err
	}
	f := finder{file: file}
	for _, doc := range docs {
		f.look(doc) // objects that are none do not matter here
	}
	for _, o := range f.pods {
		in := cmp.Or(o.At("metadata", "namespace").Text(), "default")
		if o.kind != "Pod" || o.At("metadata", "name").Text() != name || in != namespace {
			continue
		}
		r := reader{file: file, object: o}
		m := r.manifest()
		return m, o.At("status", "podIP").Text(), true, errors.Join(r.errs...)
	}
	return Manifest{}, "", false, nil
}

// A finder finds objects with pods.
type finder struct {
	file   string
	pods   []object
	others []string // kinds of the other objects
	errs   []error
}

func (f *finder) look(t document.Value) {
	kind := t.At("kind").Text()
	if kind == "" {
		f.errs = append(f.errs, fmt.Errorf("%s:%d: not a Kubernetes object: no kind", f.file, t.Line))
		return
	}

	if path, ok := paths[kind]; ok {
		o := object{t, kind, path}
		if o.At(path...).Fields == nil {
			f.errs = append(f.errs, fmt.Errorf("%s:%d: %s: %s is missing",
				f.file, t.Line, o.name(), strings.Join(path, ".")))
			return
		}
		f.pods = append(f.pods, o)
		return
	}

	if items := t.At("items").Items; items != nil && strings.HasSuffix(kind, "List") {
		for _, item := range items {
			f.look(f.inherit(item, kind))
		}
		return
	}

	// Kinds of others, such as an Argo Rollout, have a template at one of these paths.
	for _, path := range [][]string{paths["Deployment"], paths["CronJob"]} {
		if t.At(path...).At("containers").Items != nil {
			f.pods = append(f.pods, object{t, kind, path})
			return
		}
	}
	f.others = append(f.others, kind)
}

// inherit sets the kind of an item of a typed list such as PodList, which may
// omit it.
func (f *finder) inherit(item document.Value, list string) document.Value {
	kind := strings.TrimSuffix(list, "List")
	if kind == "" || item.Fields == nil || !item.At("kind").IsNull() {
		return item
	}
	item.Fields["kind"] = document.Value{Line: item.Line, Scalar: kind}
	return item
}

func (f *finder) seen() string {
	if len(f.others) == 0 {
		return "no objects"
	}
	slices.Sort(f.others)
	return strings.Join(slices.Compact(f.others), ", ")
}

// name returns the object's name for messages.
func (o object) name() string {
	name := cmp.Or(o.At("metadata", "name").Text(), o.At("metadata", "generateName").Text(), "(no name)")
	if ns := o.At("metadata", "namespace").Text(); ns != "" {
		name = ns + "/" + name
	}
	return o.kind + " " + name
}
