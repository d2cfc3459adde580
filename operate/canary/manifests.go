package canary

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/seamark/seamark/operate/servers"
)

type object = map[string]any

// manifest returns Seamark's Deployment: the old one's pods with another image, other
// labels, and an anti-affinity among themselves.
func (c *command) manifest(s *state) (object, error) {
	from, err := s.old.object()
	if err != nil {
		return nil, err
	}
	spec := at(from, "spec", "template", "spec")
	containers, _ := spec["containers"].([]any)
	if s.old.kubeDNS() >= 0 {
		err = c.replaceKubeDNS(s.old, containers)
	} else {
		err = c.replaceCoreDNS(s.old, containers)
	}
	if err != nil {
		return nil, err
	}

	// The old server's pods do not attract or repel Seamark's.
	labels := object{s.podKey(): c.Name}
	if affinity, ok := spec["affinity"].(object); ok {
		delete(affinity, "podAntiAffinity")
		delete(affinity, "podAffinity")
	}
	at(spec, "affinity")["podAntiAffinity"] = object{"preferredDuringSchedulingIgnoredDuringExecution": []any{object{
		"weight": 100,
		"podAffinityTerm": object{
			"labelSelector": object{"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname",
		},
	}}}
	if spread, ok := spec["topologySpreadConstraints"].([]any); ok {
		for _, constraint := range spread {
			if constraint, ok := constraint.(object); ok {
				constraint["labelSelector"] = object{"matchLabels": labels}
			}
		}
	}

	metadata := object{"labels": s.podLabels(c.Name)}
	if annotations := at(from, "spec", "template", "metadata", "annotations"); len(annotations) > 0 {
		ofKubectl := func(key string, _ any) bool { return strings.HasPrefix(key, "kubectl.kubernetes.io/") }
		maps.DeleteFunc(annotations, ofKubectl)
		metadata["annotations"] = annotations
	}

	result := object{
		"replicas": cmp.Or(c.Replicas, s.old.Spec.Replicas),
		"selector": object{"matchLabels": labels},
		"template": object{"metadata": metadata, "spec": spec},
	}
	if strategy := at(from, "spec", "strategy"); len(strategy) > 0 {
		result["strategy"] = strategy
	}
	return c.deployment(c.Name, result), nil
}

// podLabels returns the labels of the pods of one of Seamark's Deployments that are not behind the Service.
func (s *state) podLabels(name string) object {
	return object{s.podKey(): name, servers.CanaryLabel: name, nameKey: "seamark"}
}

// serviceLabels returns the labels by which the Service selects pods, for a patch that adds them to pods of Seamark
// or, with remove, restores what these pods had in their place.
func (s *state) serviceLabels(remove bool) object {
	labels := object{}
	for key, value := range s.service.Spec.Selector {
		switch {
		case !remove:
			labels[key] = value
		case key == nameKey && value != "seamark":
			labels[key] = "seamark"
		default:
			labels[key] = nil
		}
	}
	return labels
}

// replaceCoreDNS makes the copy of CoreDNS's container run Seamark, with the same arguments.
func (c *command) replaceCoreDNS(old *deployment, copies []any) error {
	server, err := old.server()
	if err != nil {
		return err
	}
	run, ok := copies[server].(object)
	if !ok {
		return errors.New("the old Deployment has no container")
	}

	run["image"] = c.Image
	run["args"] = withAdmin(old.Spec.Template.Spec.Containers[server].Arguments())
	delete(run, "command") // a path in the old image
	allowPort(run)
	return nil
}

// object returns all fields, with numbers as they are written.
func (d *deployment) object() (o object, err error) {
	decoder := json.NewDecoder(bytes.NewReader(d.raw))
	decoder.UseNumber()
	err = decoder.Decode(&o)
	return o, err
}

// deployment returns a Deployment. Its own labels do not have k8s-app: kubeadm counts
// Deployments with this label as DNS add-ons, and fails if it finds two. seamark doctor
// finds it by nameKey.
func (c *command) deployment(name string, spec object) object {
	return object{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": object{
			"name": name, "namespace": c.Namespace, "labels": object{appKey: name, nameKey: "seamark"},
		},
		"spec": spec,
	}
}

// onePod returns the Deployment of stage OnePod: Seamark's, with one pod that the Service
// selects. A label of a single pod of Seamark's Deployment would be lost with the pod.
func (c *command) onePod(s *state) (object, error) {
	from, err := s.seamark.object()
	if err != nil {
		return nil, err
	}
	name := c.oneName()
	template := at(from, "spec", "template")
	labels := s.podLabels(name)
	for key, value := range s.service.Spec.Selector {
		labels[key] = value
	}
	metadata := at(template, "metadata")
	delete(metadata, "creationTimestamp")
	metadata["labels"] = labels
	return c.deployment(name, object{
		"replicas": 1, "template": template,
		"selector": object{"matchLabels": object{s.podKey(): name}},
	}), nil
}

// ownService returns Seamark's own Service, with the ports of the cluster's DNS Service.
func (c *command) ownService(s *state) object {
	var ports []any
	for _, p := range s.service.Spec.Ports {
		p = maps.Clone(p)
		delete(p, "nodePort")
		ports = append(ports, p)
	}
	own := object{s.podKey(): c.Name}
	if s.seamark != nil {
		own = object{}
		for key, value := range s.seamark.Spec.Selector.MatchLabels {
			own[key] = value
		}
	}
	return object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"name": c.Name, "namespace": c.Namespace, "labels": object{appKey: c.Name}},
		"spec":     object{"selector": own, "ports": ports},
	}
}

// at returns the object at a path, and creates the missing parts of the path.
func at(o object, path ...string) object {
	for _, key := range path {
		next, ok := o[key].(object)
		if !ok {
			next = object{}
			o[key] = next
		}
		o = next
	}
	return o
}

// allowPort adds NET_BIND_SERVICE to a container that drops all capabilities: the binary has
// it as a file capability, and could not be executed without it.
func allowPort(container object) {
	security, ok := container["securityContext"].(object)
	if !ok {
		return
	}
	capabilities, ok := security["capabilities"].(object)
	if !ok {
		return
	}
	dropped, _ := capabilities["drop"].([]any)
	added, _ := capabilities["add"].([]any)
	all := func(name any) bool { return strings.EqualFold(fmt.Sprint(name), "all") }
	if slices.ContainsFunc(dropped, all) && !slices.Contains(added, any("NET_BIND_SERVICE")) &&
		!slices.ContainsFunc(added, all) {
		capabilities["add"] = append(added, "NET_BIND_SERVICE")
	}
}

// server returns the index of the container that runs CoreDNS.
func (d *deployment) server() (int, error) {
	for i, c := range d.Spec.Template.Spec.Containers {
		if corefile(c) != "" {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no container of the Deployment %s has the argument -conf of CoreDNS or runs kube-dns",
		d.Metadata.Name)
}

// withAdmin returns arguments with the flag by which the commands that look into servers reach a pod.
func withAdmin(args []string) []string {
	isAdmin := func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return name == "admin" && strings.HasPrefix(arg, "-")
	}
	if slices.ContainsFunc(args, isAdmin) {
		return args
	}
	return append(slices.Clip(args), "-admin=localhost:8053")
}

// corefile returns the path of the Corefile, "" if the container is not CoreDNS.
func corefile(c servers.Container) string { return servers.Flag(c.Arguments(), "conf") }

// configMaps returns the ConfigMaps that a container mounts, with their directories.
func (d *deployment) configMaps(c servers.Container) (mounted []mountedMap) {
	for _, m := range c.VolumeMounts {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			if v.ConfigMap != nil {
				mounted = append(mounted, mountedMap{m.MountPath, m.SubPath, *v.ConfigMap})
			}
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					mounted = append(mounted, mountedMap{m.MountPath, m.SubPath, *source.ConfigMap})
				}
			}
		}
	}
	return mounted
}

type mountedMap struct {
	path, subPath string
	configMapVolume
}

// files returns the files of a ConfigMap's data, by their path in the container.
func (m mountedMap) files(data map[string]string) map[string]string {
	named := data
	if m.Items != nil {
		named = map[string]string{}
		for _, item := range m.Items {
			named[item.Path] = data[item.Key]
		}
	}
	files := map[string]string{}
	for name, text := range named {
		switch m.subPath {
		case "":
			files[path.Join(m.path, name)] = text
		case name:
			files[path.Clean(m.path)] = text
		}
	}
	return files
}
