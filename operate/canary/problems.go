package canary

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster/apiserver"
)

// permissions returns the permissions that the commands need in the namespace.
func (c *command) permissions() []apiserver.Permission {
	list := []apiserver.Permission{
		{Verb: "list", Group: "apps", Resource: "deployments"},
		{Verb: "create", Group: "apps", Resource: "deployments"},
		{Verb: "patch", Group: "apps", Resource: "deployments"},
		{Verb: "delete", Group: "apps", Resource: "deployments"},
		{Verb: "get", Resource: "services"},
		{Verb: "create", Resource: "services"},
		{Verb: "patch", Resource: "services"},
		{Verb: "delete", Resource: "services"},
		{Verb: "list", Resource: "pods"},
		{Verb: "patch", Resource: "pods"},
		{Verb: "get", Resource: "pods", Subresource: "proxy"},
		{Verb: "get", Resource: "configmaps"},
		{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices"},
	}
	for i := range list {
		list[i].Namespace = c.Namespace
	}
	return append(list, c.DiffNeeds...)
}

// checkPermissions checks before the first change that the user may make all changes,
// the changes of a rollback included.
func (c *command) checkPermissions(ctx context.Context) error {
	var missing []string
	for _, p := range c.permissions() {
		allowed, err := c.API.Allowed(ctx, "", p)
		if err != nil {
			return fmt.Errorf("checking your permissions: %w", err)
		}
		if !allowed && p.Namespace == "" {
			missing = append(missing, c.Kubectl+" "+p.CanI()+" --all-namespaces")
		} else if !allowed {
			missing = append(missing, c.kubectl("%s", p.CanI()))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("you lack permissions; nothing was changed. Each of these commands prints no:\n%s",
			strings.Join(missing, "\n"))
	}
	return nil
}

// problems returns the problems that prevent a change to a stage, and warnings.
func (c *command) problems(ctx context.Context, s *state, to Stage) (problems, warnings []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if s.old.Spec.Replicas > 0 && !c.enoughOld(s) {
		problem("the old server is not healthy: %d of %d pods of the Deployment %s are ready,"+
			" and %d are endpoints of the Service %s",
			s.old.Status.ReadyReplicas, s.old.Spec.Replicas, s.old.Metadata.Name, c.inService(s, oldSide), c.Service)
	}
	if now := s.stage(); now == to && to > Beside {
		return problems, nil // completing a stage needs no other checks
	}

	errs, warns := c.checkCorefile(ctx, s)
	problems = append(problems, errs...)
	warnings = append(append(warnings, warns...), s.managed(to)...)

	// Without traffic yet, only what Seamark needs to run counts.
	if to == Beside {
		if c.openShift(ctx) {
			problem("OpenShift's DNS operator restores the DNS of this cluster: a canary is not supported")
		}
		more, warns := c.checkAccount(ctx, s)
		problems, warnings = append(problems, more...), append(warnings, warns...)
		return problems, append(warnings, s.podWarnings(c.Service)...)
	}

	warnings = append(warnings, c.horizontal(ctx, s)...)
	if to == Alone {
		problems = append(problems, c.scalers(ctx, s)...)
	}
	problems = append(problems, c.differences(ctx, s)...)

	for _, which := range []side{seamarkSide, oneSide} {
		for _, p := range s.pods[which] {
			if n := p.restarts(); n > 0 {
				problem("the pod %s has restarted %d times: kubectl -n %s logs --previous %s",
					p.Metadata.Name, n, c.Namespace, p.Metadata.Name)
			}
		}
	}

	if s.stage() > Beside {
		report, err := c.sample(ctx, s)
		if err != nil {
			problem("reading metrics: %v", err)
		} else {
			report.print(c.Out)
			problems = append(problems, report.Stop...)
		}
	}
	return problems, warnings
}

func (p pod) restarts() (n int) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// checkCorefile checks the Corefile that the old server has mounted, or the flags and the ConfigMap of kube-dns.
func (c *command) checkCorefile(ctx context.Context, s *state) (problems, warnings []string) {
	if s.old.kubeDNS() >= 0 {
		return c.checkKubeDNS(ctx, s)
	}

	i, err := s.old.server()
	if err != nil {
		return []string{err.Error()}, nil
	}
	server := s.old.Spec.Template.Spec.Containers[i]

	files := map[string]string{}
	for _, m := range s.old.configMaps(server) {
		var config struct{ Data map[string]string }
		err := c.get(ctx, c.path("configmaps", m.Name), &config)
		if err != nil && !(apiserver.IsNotFound(err) && m.Optional) {
			return []string{err.Error()}, nil
		}
		maps.Copy(files, m.files(config.Data))
	}
	if _, ok := files[corefile(server)]; !ok {
		return []string{fmt.Sprintf("the Corefile %s of the container %s is not in a ConfigMap that it mounts",
			corefile(server), server.Name)}, nil
	}

	s.corefile = files[corefile(server)]
	errs, warns := c.Check(corefile(server), files)
	for _, err := range errs {
		problems = append(problems, "the Corefile: "+err.Error())
	}
	for _, w := range warns {
		warnings = append(warnings, "the Corefile: "+w.Error())
	}
	return problems, warnings
}

// checkAccount checks that the pods' account may list and watch the resources that Seamark
// watches.
func (c *command) checkAccount(ctx context.Context, s *state) (problems, warnings []string) {
	account := cmp.Or(s.old.Spec.Template.Spec.ServiceAccountName, "default")
	user := "system:serviceaccount:" + c.Namespace + ":" + account
	add := "add this to its ClusterRole"
	if s.old.kubeDNS() >= 0 && c.Namespace == "kube-system" && account == "kube-dns" {
		add = "apply deploy/kube-dns/rbac"
	}

	for _, p := range apiserver.Watched() {
		allowed, err := c.API.Allowed(ctx, user, p)
		if err != nil {
			return nil, []string{fmt.Sprintf("the permissions of the account %s were not checked: %v", account, err)}
		}
		if !allowed {
			problems = append(problems, fmt.Sprintf("the account %s may not %v in all namespaces: %s", account, p, add))
		}
	}
	return problems, nil
}

// podWarnings warns about unusual settings of the old server's pods.
func (s *state) podWarnings(service string) (warnings []string) {
	spec := s.old.Spec.Template.Spec
	if spec.HostNetwork {
		warnings = append(warnings,
			"the old pods use the host's network: pods of both servers cannot run on the same node")
	}
	if len(spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		warnings = append(warnings, "the old pods have a required anti-affinity: pods that the Service "+service+
			" selects cannot run on their nodes, so you need a free node for each pod of Seamark")
	}

	others := len(spec.Containers) - 1
	if s.old.kubeDNS() >= 0 {
		others = 0
		for _, c := range spec.Containers {
			if name, _ := c.Program(); name == "" {
				others++
			}
		}
	}
	if others > 0 {
		warnings = append(warnings,
			fmt.Sprintf("the old pods have %d containers: Seamark's pods have copies of the others", len(spec.Containers)))
	}
	return warnings
}

// A restorer is a label or an annotation of a program that restores the old Deployment.
type restorer struct{ key, value, warning string }

func restorers() []restorer {
	const argo = "Argo CD restores this Deployment: exclude the replicas from its synchronization"
	return []restorer{
		{"eks.amazonaws.com/component", "", "EKS manages this add-on, and an update of the add-on scales it up again:" +
			" make it self-managed first (aws eks delete-addon --preserve)"},
		{"kubernetes.azure.com/managedby", "", "AKS manages this Deployment and restores its replicas"},
		{"addonmanager.kubernetes.io/mode", "Reconcile",
			"the add-on manager (AKS, GKE, kube-up) restores this Deployment's replicas"},
		{"objectset.rio.cattle.io/owner-name", "", "k3s or RKE2 applies this Deployment again when its server starts:" +
			" disable the packaged component (--disable coredns)"},
		{"addon.kops.k8s.io/name", "", "kops applies this add-on again at its next update"},
		{"app.kubernetes.io/managed-by", "Helm", "the next helm upgrade of this release restores its replicas:" +
			" set replicaCount: 0 in its values at the last stage"},
		{"argocd.argoproj.io/instance", "", argo},
		{"argocd.argoproj.io/tracking-id", "", argo},
		{"kustomize.toolkit.fluxcd.io/name", "", "Flux restores this Deployment: suspend its Kustomization"},
	}
}

// Restores returns warnings about programs that restore a Deployment with these labels and annotations.
// What to do follows a colon.
func Restores(labels, annotations map[string]string) (warnings []string) {
	for _, r := range restorers() {
		value, ok := labels[r.key]
		if !ok {
			value, ok = annotations[r.key]
		}
		if ok && (r.value == "" || value == r.value) {
			warnings = append(warnings, r.warning)
		}
	}
	return slices.Compact(warnings)
}

// managed returns warnings about programs that restore the old Deployment.
func (s *state) managed(to Stage) (warnings []string) {
	m := s.old.Metadata
	warnings = Restores(m.Labels, m.Annotations)
	if m.Labels["k8s-app"] == "kube-dns" && to == Alone && s.old.kubeDNS() < 0 {
		warnings = append(warnings,
			"kubeadm upgrade installs this Deployment again, but keeps its zero replicas, and may change the"+
				" Corefile; --skip-phases=addon/coredns (kubeadm 1.32 or later) leaves both as they are")
	}
	return warnings
}

// scalers returns a problem for each autoscaler that would scale the old Deployment up again.
func (c *command) scalers(ctx context.Context, s *state) (problems []string) {
	old := s.old.Metadata.Name
	if s.old.Metadata.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile" {
		problems = append(problems,
			"the add-on manager restores the replicas of "+old+" within a minute, so this stage would not last")
	}
	var list struct {
		Items []deployment
	}
	if err := c.get(ctx, c.path("deployments", ""), &list); err != nil {
		return append(problems, err.Error())
	}
	for _, d := range list.Items {
		for _, container := range d.Spec.Template.Spec.Containers {
			line := strings.ToLower(strings.Join(container.Arguments(), " ")) + " "
			if d.Spec.Replicas > 0 && strings.Contains(line, "--target=deployment/"+old+" ") {
				problems = append(problems, fmt.Sprintf("the autoscaler %s would scale %s up again: %s",
					d.Metadata.Name, old, c.kubectl("scale deployment %s --replicas=0", d.Metadata.Name)))
			}
		}
	}
	return problems
}

// horizontal returns a warning about each HorizontalPodAutoscaler of the old Deployment.
func (c *command) horizontal(ctx context.Context, s *state) (warnings []string) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ ScaleTargetRef struct{ Kind, Name string } }
		}
	}
	if c.get(ctx, c.path("horizontalpodautoscalers", ""), &list) != nil {
		return nil // there is no such group, or no permission
	}
	for _, h := range list.Items {
		if t := h.Spec.ScaleTargetRef; t.Kind == "Deployment" && t.Name == s.old.Metadata.Name {
			warnings = append(warnings, fmt.Sprintf("the HorizontalPodAutoscaler %s of %s also averages over the pods"+
				" of Seamark that the Service selects; it does not scale a Deployment without pods",
				h.Metadata.Name, t.Name))
		}
	}
	return warnings
}

// openShift reports whether the cluster has OpenShift's DNS operator.
func (c *command) openShift(ctx context.Context) bool {
	_, err := c.API.Get(ctx, "/apis/operator.openshift.io")
	return err == nil
}
