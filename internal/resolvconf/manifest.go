package resolvconf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Manifest is what a manifest says of its pod. What it does not say is zero.
type Manifest struct {
	Name        string // of the object, for messages: "Deployment shop/web"
	Namespace   string
	Policy      Policy
	HostNetwork *bool
	Config      *Config

	file string // as messages name it; "" if there is no manifest
	line int    // of the part that None would concern
}

// Flags are what stands for what a manifest does not say.
type Flags struct {
	Namespace   string
	Policy      Policy
	HostNetwork bool
}

// Pod puts the two together. It fails where the API server would refuse the pod;
// the comments name the flags that the manifest has overruled.
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
	overruled := func(flag, given, counts string) {
		if given != "" && given != counts {
			comments = append(comments, fmt.Sprintf("--%s %s does not count: %s says %s", flag, given, m.Name, counts))
		}
	}
	overruled("namespace", flags.Namespace, p.Namespace)
	overruled("dns-policy", string(flags.Policy), string(p.Policy))
	if flags.HostNetwork && !p.HostNetwork {
		overruled("host-network", "true", "false")
	}
	if p.Policy == None && (p.Config == nil || len(p.Config.Nameservers) == 0) {
		if m.file == "" {
			return Pod{}, nil, fmt.Errorf("dnsPolicy %s: the pod brings its own nameservers: give a manifest whose dnsConfig has at least one by --pod", None)
		}
		return Pod{}, nil, fmt.Errorf("%s:%d: %s: dnsPolicy %s needs a dnsConfig with at least one nameserver", m.file, m.line, m.Name, None)
	}
	return p, comments, nil
}

// paths are where the kinds of Kubernetes keep the pod's spec.
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

// An object is one that has a pod in it.
type object struct {
	tree
	kind string
	path []string // to the pod's spec
}

// ParseManifest finds the pod or pod template of a manifest in YAML or JSON: that
// of the only object which has one, in documents and in lists. Kinds that it does
// not know count if they keep containers where the known ones do. The errors are
// all of those for which the API server would refuse the pod's DNS settings.
func ParseManifest(file string, text []byte) (Manifest, []string, error) {
	docs, err := parse(file, text)
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
		return Manifest{}, nil, fmt.Errorf("%s: neither a pod nor a pod template in it, but %s; want a Pod, Deployment, StatefulSet, DaemonSet, Job or CronJob",
			file, f.seen())
	case len(f.pods) > 1:
		var all []string
		for _, o := range f.pods {
			all = append(all, fmt.Sprintf("%s (line %d)", o.name(), o.line))
		}
		return Manifest{}, nil, fmt.Errorf("%s: %d objects with pods, %s: leave one in the file, or pipe one in (kubectl get … -o yaml | seamark resolvconf --pod -)",
			file, len(all), strings.Join(all, ", "))
	}
	r := reader{file: file, object: f.pods[0]}
	m := r.manifest()
	if len(r.errs) > 0 {
		return Manifest{}, r.misplaced(), errors.Join(r.errs...)
	}
	return m, r.misplaced(), nil
}

// A finder looks for objects with pods.
type finder struct {
	file   string
	pods   []object
	others []string // kinds of the other objects
	errs   []error
}

func (f *finder) look(t tree) {
	kind := t.at("kind").text()
	if kind == "" {
		f.errs = append(f.errs, fmt.Errorf("%s:%d: not an object of Kubernetes: it has no kind", f.file, t.line))
		return
	}
	if path, ok := paths[kind]; ok {
		o := object{t, kind, path}
		if o.at(path...).fields == nil {
			f.errs = append(f.errs, fmt.Errorf("%s:%d: %s: %s is missing", f.file, t.line, o.name(), strings.Join(path, ".")))
			return
		}
		f.pods = append(f.pods, o)
		return
	}
	if items := t.at("items").items; items != nil && strings.HasSuffix(kind, "List") {
		for _, item := range items {
			f.look(f.inherit(item, kind))
		}
		return
	}
	for _, path := range [][]string{paths["Deployment"], paths["CronJob"]} {
		if t.at(path...).at("containers").items != nil {
			f.pods = append(f.pods, object{t, kind, path})
			return
		}
	}
	f.others = append(f.others, kind)
}

// inherit gives an item of a PodList and its like the kind that it need not say.
func (f *finder) inherit(item tree, list string) tree {
	kind := strings.TrimSuffix(list, "List")
	if kind == "" || item.fields == nil || !item.at("kind").isNull() {
		return item
	}
	item.fields["kind"] = tree{line: item.line, scalar: kind}
	return item
}

func (f *finder) seen() string {
	if len(f.others) == 0 {
		return "no object at all"
	}
	slices.Sort(f.others)
	return strings.Join(slices.Compact(f.others), ", ")
}

// name is the object's for messages.
func (o object) name() string {
	name := cmp.Or(o.at("metadata", "name").text(), o.at("metadata", "generateName").text(), "(no name)")
	if ns := o.at("metadata", "namespace").text(); ns != "" {
		name = ns + "/" + name
	}
	return o.kind + " " + name
}
