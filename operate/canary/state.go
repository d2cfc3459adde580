package canary

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/servers"
)

// appKey is the label of this package's objects. Its Deployments select their pods by it, unless the Service
// selects by it, too: then by servers.CanaryLabel, which all pods have.
const appKey = "app"

// nameKey is the label by which the commands that look into servers find pods, if the Service does not select by it.
const nameKey = "app.kubernetes.io/name"

// replicasKey is the annotation of the old Deployment with the number of replicas that
// it had before stage Alone.
const replicasKey = "seamark-canary/replicas"

// A state contains the objects that a canary depends on.
type state struct {
	service service
	old     *deployment
	seamark *deployment     // nil if it does not exist
	one     *deployment     // of the pod of stage OnePod; nil if it does not exist
	own     *service        // Seamark's; nil if it does not exist
	pods    [3][]pod        // by side, without terminating ones
	serving map[string]bool // addresses of the Service's ready endpoints

	corefile string // the text of the old server's Corefile, or that for kube-dns, once it has been checked
}

// A side is one of the three Deployments.
type side int

const (
	oldSide side = iota
	seamarkSide
	oneSide
)

type service struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		ClusterIP string
		Selector  map[string]string
		Ports     []map[string]any
	}
}

// A deployment has the fields that the package reads. raw has all of them.
type deployment struct {
	Metadata struct {
		Name                string
		Generation          int64
		Labels, Annotations map[string]string
	}
	Spec struct {
		Replicas int
		Selector labelSelector
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
	Status struct {
		ObservedGeneration                       int64
		Replicas, UpdatedReplicas, ReadyReplicas int
	}
	raw json.RawMessage
}

// A labelSelector selects the pods of a Deployment, which have all labels and fulfil all expressions.
type labelSelector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

// String returns the selector in the syntax of the parameter labelSelector.
func (l labelSelector) String() string {
	var terms []string
	if len(l.MatchLabels) > 0 {
		terms = append(terms, Selector(l.MatchLabels))
	}
	for _, e := range l.MatchExpressions {
		term := e.Key // Exists
		switch values := strings.Join(e.Values, ","); e.Operator {
		case "In":
			term += " in (" + values + ")"
		case "NotIn":
			term += " notin (" + values + ")"
		case "DoesNotExist":
			term = "!" + term
		}
		terms = append(terms, term)
	}
	return strings.Join(terms, ",")
}

// has reports whether the selector depends on a label.
func (l labelSelector) has(key string) bool {
	_, ok := l.MatchLabels[key]
	for _, e := range l.MatchExpressions {
		ok = ok || e.Key == key
	}
	return ok
}

type podSpec struct {
	ServiceAccountName string
	HostNetwork        bool
	Containers         []servers.Container
	Volumes            []struct {
		Name      string
		ConfigMap *configMapVolume
		Projected struct {
			Sources []struct{ ConfigMap *configMapVolume }
		}
	}
	Affinity struct {
		PodAntiAffinity struct {
			RequiredDuringSchedulingIgnoredDuringExecution []any
		}
	}
}

type configMapVolume struct {
	Name     string
	Optional bool
	Items    []struct{ Key, Path string }
}

type pod struct {
	Metadata struct {
		Name, Namespace   string
		Labels            map[string]string
		DeletionTimestamp string
	}
	Status struct {
		PodIP             string
		Conditions        api.Conditions
		ContainerStatuses []struct{ RestartCount int }
	}
}

// matches reports whether labels have every pair of a selector.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// complete reports whether all pods are of the current template, and ready.
func (d *deployment) complete() bool {
	n := d.Spec.Replicas
	return d.Status.ObservedGeneration >= d.Metadata.Generation &&
		d.Status.Replicas == n && d.Status.UpdatedReplicas == n && d.Status.ReadyReplicas == n
}

// labelled reports whether the Service selects the pods of a Deployment.
func (s *state) labelled(d *deployment) bool {
	return d != nil && matches(s.service.Spec.Selector, d.Spec.Template.Metadata.Labels)
}

// podKey returns the label by which the Deployments of this package select their pods. The Service's selector does
// not have it.
func (s *state) podKey() string {
	if _, ok := s.service.Spec.Selector[appKey]; ok {
		return servers.CanaryLabel
	}
	return appKey
}

func (s *state) stage() Stage {
	switch {
	case s.seamark == nil && s.one == nil:
		return None
	case s.labelled(s.seamark) && s.old.Spec.Replicas == 0:
		return Alone
	case s.labelled(s.seamark):
		return AllPods
	case s.one != nil:
		return OnePod
	}
	return Beside
}

func (s *state) ready(which side) []pod {
	return slices.DeleteFunc(slices.Clone(s.pods[which]), func(p pod) bool { return !p.Status.Conditions.Ready() })
}

// selected returns the pods of a side that the Service selects.
func (s *state) selected(which side) []pod {
	return slices.DeleteFunc(slices.Clone(s.pods[which]), func(p pod) bool {
		return !matches(s.service.Spec.Selector, p.Metadata.Labels)
	})
}

// remembered returns the number of replicas that the old Deployment had before stage
// Alone.
func (s *state) remembered() (n int, ok bool) {
	text, ok := s.old.Metadata.Annotations[replicasKey]
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n > 0
}

// readState reads the objects that a canary depends on.
func (c *command) readState(ctx context.Context) (*state, error) {
	if c.Name == c.Service || c.oneName() == c.Service {
		return nil, fmt.Errorf("--name: %s is the cluster's DNS Service, want another name", c.Service)
	}

	s := &state{serving: map[string]bool{}}
	if err := c.get(ctx, c.path("services", c.Service), &s.service); err != nil {
		if apiserver.IsNotFound(err) {
			return nil, fmt.Errorf("namespace %s has no Service %s, which the pods' queries are sent to:"+
				" set --namespace and --service", c.Namespace, c.Service)
		}
		return nil, err
	}
	if len(s.service.Spec.Selector) == 0 {
		return nil, fmt.Errorf("the Service %s/%s has no selector: its endpoints are not pods of a Deployment,"+
			" and this command cannot change them", c.Namespace, c.Service)
	}

	if err := c.readDeployments(ctx, s); err != nil {
		return nil, err
	}

	own := new(service)
	switch err := c.get(ctx, c.path("services", c.Name), own); {
	case err == nil:
		s.own = own
	case !apiserver.IsNotFound(err):
		return nil, err
	}

	if err := c.readPods(ctx, s); err != nil {
		return nil, err
	}
	return s, c.readEndpoints(ctx, s)
}

// readDeployments finds the Deployments of both servers.
func (c *command) readDeployments(ctx context.Context, s *state) error {
	var list struct{ Items []json.RawMessage }
	if err := c.get(ctx, c.path("deployments", ""), &list); err != nil {
		return err
	}

	var old []*deployment
	var names []string
	for _, raw := range list.Items {
		d := &deployment{raw: raw}
		if err := json.Unmarshal(raw, d); err != nil {
			return fmt.Errorf("reading a Deployment of namespace %s: %w", c.Namespace, err)
		}
		switch name := d.Metadata.Name; {
		case name == c.Name:
			s.seamark = d
		case name == c.oneName():
			s.one = d
		case name == c.Deployment,
			c.Deployment == "" && matches(s.service.Spec.Selector, d.Spec.Template.Metadata.Labels):
			old = append(old, d)
			names = append(names, name)
		}
	}

	switch {
	case len(old) == 0 && c.Deployment != "":
		return fmt.Errorf("namespace %s has no Deployment %s", c.Namespace, c.Deployment)
	case len(old) == 0:
		return fmt.Errorf("namespace %s has no Deployment with pods that the Service %s selects (%s):"+
			" the cluster's DNS runs in another namespace, in a DaemonSet or outside the cluster."+
			" Set --namespace, --service and --deployment; a DaemonSet is not supported",
			c.Namespace, c.Service, Selector(s.service.Spec.Selector))
	case len(old) > 1:
		return fmt.Errorf("the Service %s selects pods of several Deployments: %s."+
			" Set --deployment to the one to replace", c.Service, strings.Join(names, ", "))
	}
	s.old = old[0]

	// A label of the selector cannot be removed from the pods of a Deployment.
	for _, d := range []*deployment{s.seamark, s.one} {
		if d == nil {
			continue
		}
		// Seamark's own Service selects its pods, too, and can do so by labels only.
		if len(d.Spec.Selector.MatchLabels) == 0 {
			return fmt.Errorf("the Deployment %s has no selector.matchLabels. Set --name to another name", d.Metadata.Name)
		}
		advice := "Set --name to another name"
		if !s.labelled(d) { // a rollback has nothing to take out of the Service
			if c.back {
				continue
			}
			advice += ", or run seamark canary rollback --delete"
		}
		for key := range s.service.Spec.Selector {
			if d.Spec.Selector.has(key) {
				return fmt.Errorf("the Deployment %s selects its pods by the label %s, as the Service %s does,"+
					" so they cannot be taken out of the Service. %s", d.Metadata.Name, key, c.Service, advice)
			}
		}
	}
	return nil
}

// readPods reads the pods of each side. The labels of Seamark's pods may match the old
// Deployment's selector, too.
func (c *command) readPods(ctx context.Context, s *state) error {
	seen := map[string]bool{}
	for _, which := range []side{oneSide, seamarkSide, oldSide} {
		var list struct{ Items []pod }
		path := c.path("pods", "") + "?labelSelector=" + url.QueryEscape(c.selector(s, which).String())
		if err := c.get(ctx, path, &list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if !seen[p.Metadata.Name] && p.Metadata.DeletionTimestamp == "" {
				seen[p.Metadata.Name] = true
				s.pods[which] = append(s.pods[which], p)
			}
		}
	}
	return nil
}

// selector returns the selector of a side's pods, which may outlive its Deployment.
func (c *command) selector(s *state, which side) labelSelector {
	switch {
	case which == oldSide:
		return s.old.Spec.Selector
	case which == oneSide:
		return labelSelector{MatchLabels: map[string]string{s.podKey(): c.oneName()}}
	case s.seamark == nil:
		return labelSelector{MatchLabels: map[string]string{s.podKey(): c.Name}}
	}
	return s.seamark.Spec.Selector
}

func (c *command) readEndpoints(ctx context.Context, s *state) error {
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []string
				Conditions struct{ Ready *bool }
			}
		}
	}
	selector := url.QueryEscape("kubernetes.io/service-name=" + c.Service)
	if err := c.get(ctx, c.path("endpointslices", "")+"?labelSelector="+selector, &list); err != nil {
		return err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			for _, a := range e.Addresses {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					s.serving[a] = true
				}
			}
		}
	}
	return nil
}

func (c *command) oneName() string { return c.Name + "-canary" }

// path returns the path of an object, or of the list of a resource if name is empty.
func (c *command) path(resource, name string) string {
	group := "/api/v1"
	switch resource {
	case "deployments":
		group = "/apis/apps/v1"
	case "endpointslices":
		group = "/apis/discovery.k8s.io/v1"
	case "horizontalpodautoscalers":
		group = "/apis/autoscaling/v2"
	}
	path := group + "/namespaces/" + url.PathEscape(c.Namespace) + "/" + resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func (c *command) get(ctx context.Context, path string, into any) error {
	return c.API.Read(ctx, path, path+" from the API server", into)
}
