package canary

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster/apiserver"
	"sigs.k8s.io/yaml"
)

// A step is a change of the objects, a condition to wait for, or a change that is repeated
// until a condition is true: send or done may be nil.
type step struct {
	purpose string
	command string // of kubectl, with the same effect
	send    func(context.Context) error
	done    func(*state) (progress string, ok bool)
}

func (s step) print(w io.Writer) { fmt.Fprintf(w, "# %s\n%s\n", s.purpose, s.command) }

// Content types of requests.
const (
	applyType = "application/apply-patch+yaml"
	mergeType = "application/merge-patch+json"
	jsonType  = "application/json"
)

const manager = "seamark-canary" // the field manager of applied objects

// steps returns the steps that change the objects of s to the objects of a stage. Their order is the
// safety of the command: a step that takes traffic from a server follows the steps that wait until
// the other one is ready. So the Service has ready pods wherever the command is interrupted.
func (c *command) steps(s *state, to Stage) []step {
	out := c.withdraw(s, to)
	return slices.Concat(
		c.restore(s, to, len(out) > 0), // the old server, before Seamark leaves
		c.install(s, to),
		c.serve(s, to),
		out,             // of the Service, after the pods that remain in it are ready
		c.retire(s, to), // the old server, after all pods of Seamark serve
		c.forget(s, to),
	)
}

// restore returns the steps that bring the old server back, and wait until it is ready. Pods of
// Seamark may be leaving the Service.
func (c *command) restore(s *state, to Stage, leaving bool) (steps []step) {
	name := s.old.Metadata.Name
	scaled := to < Alone && s.old.Spec.Replicas == 0
	if scaled {
		n, ok := s.remembered()
		if !ok {
			n = max(c.Replicas, 1)
			if s.seamark != nil {
				n = max(c.Replicas, s.seamark.Spec.Replicas)
			}
		}
		steps = append(steps, c.patch("Scale the old server up again", name, object{"spec": object{"replicas": n}}))
	}

	if scaled || to < AllPods && leaving && !c.enoughOld(s) {
		ready := func(s *state) (string, bool) {
			return fmt.Sprintf("%s: %d of %d pods ready",
				s.old.Metadata.Name, s.old.Status.ReadyReplicas, s.old.Spec.Replicas), c.enoughOld(s)
		}
		const purpose = "Wait until the old server is ready"
		steps = append(steps, step{purpose: purpose, command: c.rollout(name), done: ready})
	}
	return steps
}

// retire returns the step to Alone.
func (c *command) retire(s *state, to Stage) []step {
	if to != Alone || s.old.Spec.Replicas == 0 {
		return nil
	}
	const purpose = "Scale the old server to zero, and remember its number of replicas"
	return []step{c.patch(purpose, s.old.Metadata.Name, object{
		"metadata": object{"annotations": object{replicasKey: strconv.Itoa(s.old.Spec.Replicas)}},
		"spec":     object{"replicas": 0},
	})}
}

// forget returns the steps that remove what a stage does not need.
func (c *command) forget(s *state, to Stage) (steps []step) {
	if _, ok := s.old.Metadata.Annotations[replicasKey]; to < Alone && ok {
		unset := object{"metadata": object{"annotations": object{replicasKey: nil}}}
		steps = append(steps, c.patch("Remove the annotation", s.old.Metadata.Name, unset))
	}
	if to == None && s.seamark != nil {
		steps = append(steps, c.removeOwn("deployments", s.seamark.Metadata.Labels))
	}
	if to == None && s.own != nil {
		steps = append(steps, c.removeOwn("services", s.own.Metadata.Labels))
	}
	return steps
}

// enoughOld reports whether the old server can take all queries: all of its pods are
// ready or, with Force, one. They are endpoints of the Service, without which they get none.
func (c *command) enoughOld(s *state) bool {
	if c.Force != "" {
		return c.inService(s, oldSide) > 0
	}
	return s.old.Spec.Replicas > 0 && s.old.complete() && c.inService(s, oldSide) >= s.old.Spec.Replicas
}

// inService returns the number of ready pods of a side that are endpoints of the Service.
func (c *command) inService(s *state, which side) (n int) {
	for _, p := range s.ready(which) {
		if s.serving[p.Status.PodIP] {
			n++
		}
	}
	return n
}

// install returns the steps to Beside.
func (c *command) install(s *state, to Stage) (steps []step) {
	if to == None || c.back {
		return nil
	}
	if s.own == nil && (s.seamark == nil || c.Image != "") { // the chart's Service has another name
		steps = append(steps, c.apply("Create a Service for Seamark alone", "services", c.ownService(s)))
	}
	if s.seamark == nil || c.Image != "" && s.seamark.image() != c.Image {
		if c.Image == "" && s.one != nil {
			c.Image = s.one.image()
		}
		manifest, err := c.manifest(s)
		const purpose = "Run Seamark beside the old server, with its configuration and account"
		steps = append(steps, c.applyOr(purpose, "deployments", manifest, err))
	}
	if len(steps) > 0 || !s.seamark.complete() {
		steps = append(steps, c.ready(c.Name))
	}
	return steps
}

// serve returns the steps that add pods to the Service, up to OnePod or AllPods.
func (c *command) serve(s *state, to Stage) (steps []step) {
	switch {
	case to == OnePod:
		if s.one == nil || s.seamark != nil && s.one.image() != s.seamark.image() {
			manifest, err := c.onePod(s)
			purpose := "Run one pod of Seamark behind the Service " + c.Service
			steps = append(steps, c.applyOr(purpose, "deployments", manifest, err))
		}
		if len(steps) > 0 || !s.one.complete() || c.inService(s, oneSide) == 0 {
			steps = append(steps, c.ready(c.oneName()), c.endpoints(oneSide, c.oneName()))
		}
	case to >= AllPods:
		if !s.labelled(s.seamark) {
			labelled := template(s.serviceLabels(false))
			steps = append(steps, c.patch("Add the pods of Seamark to the Service "+c.Service, c.Name, labelled))
		}
		if len(steps) > 0 || !s.seamark.complete() || c.inService(s, seamarkSide) < s.seamark.Spec.Replicas {
			steps = append(steps, c.ready(c.Name), c.endpoints(seamarkSide, c.Name))
		}
	}
	return steps
}

// withdraw returns the steps that remove pods from the Service: Seamark's pods in stages below
// AllPods, and the pod of stage OnePod in all others.
func (c *command) withdraw(s *state, to Stage) (steps []step) {
	if to < AllPods && (s.labelled(s.seamark) || len(s.selected(seamarkSide)) > 0) {
		if s.labelled(s.seamark) {
			unlabelled := template(s.serviceLabels(true))
			steps = append(steps, c.patch("Take new pods of Seamark out of the Service "+c.Service, c.Name, unlabelled))
		}
		steps = append(steps, c.unlabel(s, seamarkSide))
	}
	if to != OnePod && len(s.selected(oneSide)) > 0 {
		steps = append(steps, c.unlabel(s, oneSide))
	}
	if to != OnePod && s.one != nil {
		steps = append(steps, c.remove("deployments", c.oneName()))
	}
	return steps
}

// template returns the patch of a Deployment that changes labels of its pods.
func template(labels object) object {
	return object{"spec": object{"template": object{"metadata": object{"labels": labels}}}}
}

func (d *deployment) image() string {
	if d == nil {
		return ""
	}
	i := d.kubeDNS()
	if i < 0 {
		var err error
		if i, err = d.server(); err != nil {
			return ""
		}
	}
	return d.Spec.Template.Spec.Containers[i].Image
}

func (c *command) kubectl(format string, args ...any) string {
	return c.Kubectl + " -n " + c.Namespace + " " + fmt.Sprintf(format, args...)
}

func (c *command) request(method, path, contentType string, body []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.API.Do(ctx, method, path, contentType, body)
		if method == http.MethodDelete && apiserver.IsNotFound(err) {
			return nil
		}
		return err
	}
}

func (c *command) patch(purpose, name string, patch object) step {
	body := encode(patch)
	return step{
		purpose: purpose,
		command: c.kubectl("patch deployment %s --type=merge -p '%s'", name, body),
		send:    c.request(http.MethodPatch, c.path("deployments", name), mergeType, body),
	}
}

// apply returns a server-side apply: it creates an object, or changes the fields that
// this command has applied before.
func (c *command) apply(purpose, resource string, o object) step {
	body := encode(o)
	text, err := yaml.JSONToYAML(body)
	if err != nil {
		return broken(purpose, err)
	}
	path := c.path(resource, o["metadata"].(object)["name"].(string)) + "?fieldManager=" + manager
	return step{
		purpose: purpose,
		command: c.kubectl("apply --server-side --field-manager=%s -f - <<'EOF'\n%sEOF", manager, text),
		send:    c.request(http.MethodPatch, path, applyType, body),
	}
}

func (c *command) applyOr(purpose, resource string, o object, err error) step {
	if err != nil {
		return broken(purpose, err)
	}
	return c.apply(purpose, resource, o)
}

// broken returns a step that fails.
func broken(purpose string, err error) step {
	return step{purpose: purpose, command: "# " + err.Error(), send: func(context.Context) error { return err }}
}

// removeOwn deletes an object of this command, which has its label.
func (c *command) removeOwn(resource string, labels map[string]string) step {
	if labels[appKey] != c.Name {
		kind := strings.TrimSuffix(resource, "s")
		return broken("Delete the "+kind+" "+c.Name, fmt.Errorf("it lacks the label %s=%s of this command:"+
			" delete it with the tool that has installed it", appKey, c.Name))
	}
	return c.remove(resource, c.Name)
}

func (c *command) remove(resource, name string) step {
	kind := strings.TrimSuffix(resource, "s")
	return step{
		purpose: "Delete the " + kind + " " + name,
		command: c.kubectl("delete %s %s --ignore-not-found", kind, name),
		send: c.request(http.MethodDelete, c.path(resource, name), jsonType,
			encode(object{"propagationPolicy": "Background"})),
	}
}

// unlabel removes the running pods of a side from the Service at once: they answer the
// queries that they have received. A rollout of the Deployment would wait for new pods,
// which may never be ready.
func (c *command) unlabel(s *state, which side) step {
	pods := c.selector(s, which).String()
	if strings.ContainsAny(pods, " !") {
		pods = "'" + pods + "'" // for the shell
	}
	command := c.kubectl("label pods -l %s", pods)
	restored := s.serviceLabels(true)
	for _, key := range slices.Sorted(maps.Keys(restored)) {
		if value := restored[key]; value != nil {
			command += fmt.Sprintf(" --overwrite %s=%s", key, value)
			continue
		}
		command += " " + key + "-"
	}

	return step{
		purpose: "Take the running pods out of the Service " + c.Service,
		command: command,
		send: func(ctx context.Context) error {
			s, err := c.readState(ctx)
			if err != nil {
				return err
			}
			return c.unlabelPods(ctx, s, which)
		},
		done: func(s *state) (string, bool) {
			n, serving := len(s.selected(which)), c.inService(s, which)
			return fmt.Sprintf("%d pods have the labels, %d are endpoints", n, serving), n == 0 && serving == 0
		},
	}
}

func (c *command) unlabelPods(ctx context.Context, s *state, which side) error {
	body := encode(object{"metadata": object{"labels": s.serviceLabels(true)}})
	for _, p := range s.selected(which) {
		_, err := c.API.Do(ctx, http.MethodPatch, c.path("pods", p.Metadata.Name), mergeType, body)
		if err != nil && !apiserver.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *command) rollout(name string) string {
	return c.kubectl("rollout status deployment/%s --timeout=%v", name, c.Timeout)
}

// ready waits for all pods of one of Seamark's Deployments.
func (c *command) ready(name string) step {
	purpose := "Wait until the pods of " + name + " are ready"
	return step{purpose: purpose, command: c.rollout(name), done: func(s *state) (string, bool) {
		d := s.seamark
		if name != c.Name {
			d = s.one
		}
		if d == nil {
			return name + " does not exist", false
		}
		return fmt.Sprintf("%s: %d of %d pods updated, %d ready",
			name, d.Status.UpdatedReplicas, d.Spec.Replicas, d.Status.ReadyReplicas), d.complete()
	}}
}

// endpoints waits until the Service has the ready pods of a side.
func (c *command) endpoints(which side, name string) step {
	command := c.kubectl("get endpointslices -l kubernetes.io/service-name=%s", c.Service)
	purpose := "Wait until the Service " + c.Service + " has the pods of " + name
	return step{purpose: purpose, command: command, done: func(s *state) (string, bool) {
		n, want := c.inService(s, which), len(s.pods[which])
		return fmt.Sprintf("%d of %d pods are endpoints", n, want), n == want && want > 0
	}}
}

func encode(o object) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // of maps, strings and numbers
	}
	return text
}
