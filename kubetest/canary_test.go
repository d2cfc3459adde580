package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/canary"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/test/chaintest"
)

// A run is what a test does with a canary in one namespace.
type canaryRun struct {
	*dnsCluster
	canary.Options
	out bytes.Buffer
}

func (d *dnsCluster) run(t *testing.T, namespace string) *canaryRun {
	t.Helper()
	d.coredns(namespace)
	session := must(apiserver.NewSession(cluster.Options{Kubeconfig: d.file}))(t)
	t.Cleanup(session.Close)
	r := &canaryRun{dnsCluster: d}
	r.Options = canary.Options{
		Namespace: namespace, Service: "kube-dns", Name: "seamark", Image: "registry.invalid/seamark:1",
		Timeout: patience, Poll: 10 * time.Millisecond, Interval: time.Millisecond, MetricsPort: 9153, Kubectl: "kubectl",
		Rule: canary.Rule{MinQueries: 100, MaxServfail: 0.005, MaxErrors: 0.005, MaxSlowdown: 2, MinP99: 5 * time.Millisecond},
		API:  session, Out: &r.out,
		Check: func(file string, files map[string]string) (errs, warnings []error) {
			if !strings.Contains(files[file], "kubernetes cluster.local") {
				errs = append(errs, fmt.Errorf("%s: got %q, want the Corefile of the ConfigMap", file, files[file]))
			}
			return errs, nil
		},
	}
	return r
}

// do runs a command and returns its error.
func (r *canaryRun) do(command func(context.Context, canary.Options) error) error {
	r.Helper()
	r.out.Reset()
	return command(r.Context(), r.Options)
}

// must runs a command and checks which pods are behind kube-dns afterwards.
func (r *canaryRun) must(command func(context.Context, canary.Options) error, want string) {
	r.Helper()
	if err := r.do(command); err != nil {
		r.Fatalf("got %v\n%s", err, r.out.String())
	}
	r.await(want)
}

func (r *canaryRun) await(want string) {
	r.Helper()
	chaintest.Eventually(r.T, r.Namespace+": kube-dns has "+want, func() bool { return r.endpoints(r.Namespace) == want })
}

// stage returns the stage, and whether it is complete.
func (r *canaryRun) stage() string {
	r.Helper()
	status, err := canary.ReadStatus(r.Context(), r.Options)
	if err != nil {
		r.Fatal(err)
	}
	text := fmt.Sprint(status.Stage)
	if !status.Complete {
		text += " incomplete"
	}
	return text
}

// advance brings a new cluster to a stage.
func (r *canaryRun) advance(stage int) {
	r.Helper()
	r.advanceFrom(0, stage)
	if got, want := r.stage(), fmt.Sprint(stage); got != want {
		r.Fatalf("stage: got %s, want %s", got, want)
	}
}

// advanceFrom brings a cluster from one stage to another.
func (r *canaryRun) advanceFrom(from, to int) {
	r.Helper()
	behind := []string{"coredns:2", "coredns:2", "coredns:2 seamark-canary:1", "coredns:2 seamark:2", "seamark:2"}
	for stage := from + 1; stage <= to; stage++ {
		command := canary.Promote
		if stage == 1 {
			command = canary.Start
		}
		r.must(command, behind[stage])
	}
}

// A canary goes through its stages and back, and leaves the old server's objects as they
// were.
func TestCanary(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	read := func() (*corev1.Service, *corev1.ConfigMap) {
		return must(d.k.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{}))(t),
			must(d.k.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}))(t)
	}
	service, config := read()
	old := must(d.k.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}))(t)

	r.advance(4)
	now := must(d.k.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}))(t)
	if *now.Spec.Replicas != 0 || now.Annotations["seamark-canary/replicas"] != "2" {
		t.Errorf("old Deployment: got %d replicas and annotations %v, want 0 and seamark-canary/replicas=2", *now.Spec.Replicas, now.Annotations)
	}
	for _, name := range []string{"seamark", "seamark-canary"} {
		o, err := d.k.AppsV1().Deployments("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && o.Labels["k8s-app"] != "" {
			t.Errorf("Deployment %s: got label k8s-app=%s, want none: kubeadm counts Deployments with it", name, o.Labels["k8s-app"])
		}
	}
	labelled := must(d.k.AppsV1().Deployments("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: servers.Selector}))(t)
	if len(labelled.Items) != 1 || labelled.Items[0].Name != "seamark" {
		t.Errorf("Deployments that seamark doctor finds: got %v, want seamark", labelled.Items)
	}
	r.must(canary.Promote, "seamark:2") // nothing to do

	r.must(canary.Rollback, "coredns:2")
	r.Delete = true
	r.must(canary.Rollback, "coredns:2")
	if got := r.stage(); got != "0" {
		t.Errorf("stage after rollback --delete: got %s, want 0", got)
	}
	newService, newConfig := read()
	if newService.ResourceVersion != service.ResourceVersion || newConfig.ResourceVersion != config.ResourceVersion {
		t.Errorf("got a changed Service or ConfigMap, want both unchanged:\n%v\n%v", newService, newConfig)
	}
	now = must(d.k.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}))(t)
	if !equality.Semantic.DeepEqual(now.Spec, old.Spec) || !equality.Semantic.DeepEqual(now.Labels, old.Labels) || len(now.Annotations) != len(old.Annotations) {
		t.Errorf("old Deployment: got\n%v\nwant\n%v", now, old)
	}
	if list := must(d.k.AppsV1().Deployments("kube-system").List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 1 {
		t.Errorf("got %d Deployments, want 1", len(list.Items))
	}
}

// Rollback is one step from every stage.
func TestCanaryRollback(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	for stage := range 5 {
		r := d.run(t, fmt.Sprintf("stage-%d", stage))
		r.advance(stage)
		r.must(canary.Rollback, "coredns:2")
		want := fmt.Sprint(min(stage, 1))
		chaintest.Eventually(t, fmt.Sprintf("stage %s after a rollback from %d", want, stage), func() bool { return r.stage() == want })
	}
}

// Seamark's pods have labels of their own in every stage, whatever labels the Service selects by, and rollback is one
// step from each.
func TestCanaryServiceLabels(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	for name, labels := range map[string]map[string]string{
		"app":   {"app": "coredns"},
		"chart": {"app.kubernetes.io/instance": "coredns", "app.kubernetes.io/name": "coredns", "k8s-app": "coredns"},
	} {
		for stage := 1; stage < 5; stage++ {
			d.labels = labels
			r := d.run(t, fmt.Sprintf("%s-%d", name, stage))
			r.advance(stage)
			r.found()

			r.must(canary.Rollback, "coredns:2")
			chaintest.Eventually(t, r.Namespace+": stage 1 after a rollback", func() bool { return r.stage() == "1" })
			r.found()
			r.Delete = true
			r.must(canary.Rollback, "coredns:2")
			if got := r.stage(); got != "0" {
				t.Errorf("%s: stage after rollback --delete: got %s, want 0", r.Namespace, got)
			}
		}
	}
}

// found checks that the commands that look into servers find the pods of Seamark, and no others.
func (r *canaryRun) found() {
	r.Helper()
	o := servers.Options{Cluster: cluster.Options{Kubeconfig: r.file}, Namespace: r.Namespace, Timeout: patience}
	var got, want []string
	chaintest.Eventually(r.T, r.Namespace+": the commands find the pods of Seamark", func() bool {
		got, want = nil, nil
		found, err := servers.Pods(r.Context(), o)
		for _, s := range found {
			got = append(got, s.Pod.Name)
			s.Close()
		}
		for _, p := range must(r.k.CoreV1().Pods(r.Namespace).List(r.Context(), metav1.ListOptions{}))(r.T).Items {
			if p.OwnerReferences[0].Name != "coredns" {
				want = append(want, p.Name)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		return err == nil && slices.Equal(got, want)
	})
}

// Errors, slow answers, differences and too few queries stop a promotion; --force
// continues and prints the reason.
func TestCanaryStops(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	r.advance(1)
	differences, diffErr := canary.Differences{Unexplained: 3, Summary: "TTL 5 instead of 30"}, error(nil)
	var compared []string
	r.Diff = func(_ context.Context, pod canary.Pod, corefile string) (canary.Differences, error) {
		name, _, _ := strings.Cut(pod.Name, "-")
		compared = append(compared, name)
		if !strings.Contains(corefile, "kubernetes cluster.local") {
			t.Errorf("diff: got the Corefile %q, want that of the ConfigMap", corefile)
		}
		return differences, diffErr
	}
	refused := func(words ...string) {
		t.Helper()
		d.disarm()
		err := r.do(canary.Promote)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("promote: got %v, want an error with %q", err, word)
			}
		}
		d.set(func() {
			if d.writes != 0 {
				t.Errorf("promote: got %d writes, want none", d.writes)
			}
		})
	}
	refused("3 answers of coredns-", "3 answers of seamark-", "TTL 5 instead of 30")
	diffErr = errors.New("no reply")
	refused("no reply")
	differences, diffErr = canary.Differences{Summary: "4812 names are equal"}, nil
	r.must(canary.Promote, "coredns:2 seamark-canary:1")
	if !strings.Contains(r.out.String(), "4812 names are equal") {
		t.Errorf("promote: got\n%s\nwant the result of the comparison", r.out.String())
	}

	d.set(func() { d.servfail["seamark-canary"] = 20 })
	refused("SERVFAIL: 2.00% of Seamark's queries, 0.00% of the old server's")
	d.set(func() { d.servfail[""] = 20 }) // CoreDNS has as many
	d.set(func() { d.slow["seamark-canary"] = true })
	refused("p99: Seamark 1013.8 ms, the old server 2.0 ms")
	d.set(func() { d.slow["seamark-canary"] = false })
	r.Rule.MinQueries = 5000
	refused("Seamark had 1000 queries")

	r.Force = "planned\ntest"
	r.must(canary.Promote, "coredns:2 seamark:2")
	if !strings.Contains(r.out.String(), "# --force: planned test\n") || !strings.Contains(r.out.String(), "# ignored: Seamark had 1000 queries") {
		t.Errorf("promote --force: got\n%s\nwant the reason and what it ignores", r.out.String())
	}
}

// Whenever a command loses the API server, the next one continues or returns.
func TestCanaryInterrupted(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	for stage := range 5 {
		for _, back := range []bool{false, true} {
			writes := 0
			for d.interrupt(t, stage, writes, back) {
				writes++
			}
			t.Logf("stage %d: %d writes", stage, writes)
			if stage == 4 {
				break
			}
		}
	}
}

// interrupt runs the command that leaves a stage, which is a rollback from the last one,
// ends it at a write, and then continues or returns. If it returns, the write is applied
// and its response is lost. interrupt reports whether there was such a write.
func (d *dnsCluster) interrupt(t *testing.T, stage, writes int, back bool) (interrupted bool) {
	t.Helper()
	r := d.run(t, fmt.Sprintf("from-%d-%d-%t", stage, writes, back))
	defer d.remove(r.Namespace)
	r.advance(stage)
	command := canary.Promote
	switch stage {
	case 0:
		command = canary.Start
	case 4:
		command = canary.Rollback
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.arm(writes, back, cancel)
	err := command(ctx, r.Options)
	if interrupted = d.disarm(); interrupted != (err != nil) {
		t.Fatalf("%s: got error %v, want one if the API server is lost: %t", r.Namespace, err, interrupted)
	}
	if back || stage == 4 {
		r.must(canary.Rollback, "coredns:2")
		return interrupted
	}
	for range 2 { // the next stage may be incomplete, or not have begun
		if r.stage() == fmt.Sprint(stage+1) {
			break
		}
		if err := r.do(command); err != nil {
			t.Fatalf("%s: got %v\n%s", r.Namespace, err, r.out.String())
		}
	}
	r.await([]string{"coredns:2", "coredns:2 seamark-canary:1", "coredns:2 seamark:2", "seamark:2"}[stage])
	return interrupted
}

// Without a permission nothing is changed, and the error names the permission.
func TestCanaryForbidden(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	d.set(func() { d.denied = "pods/proxy" })
	err := r.do(canary.Start)
	if want := "kubectl -n kube-system auth can-i get pods --subresource=proxy"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start: got %v, want an error with %q", err, want)
	}
	r.DiffNeeds = []apiserver.Permission{{Verb: "list", Resource: "services"}, {Verb: "create", Resource: "pods", Subresource: "portforward", Namespace: "kube-system"}}
	for denied, want := range map[string]string{
		"pods/portforward": "kubectl -n kube-system auth can-i create pods --subresource=portforward",
		"services":         "kubectl auth can-i list services --all-namespaces",
	} {
		d.set(func() { d.denied = denied })
		if err := r.do(canary.Start); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start without %s: got %v, want an error with %q", denied, err, want)
		}
	}
	if got := r.stage(); got != "0" {
		t.Errorf("stage without permission: got %s, want 0", got)
	}
}

// An interrupt during the checks changes nothing, and the error has no other text.
func TestCanaryInterruptedChecks(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	r.advance(1)
	var interrupt context.CancelFunc
	interruptible := func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		interrupt = cancel
		return ctx
	}
	r.Diff = func(ctx context.Context, _ canary.Pod, _ string) (canary.Differences, error) {
		interrupt()
		return canary.Differences{}, ctx.Err()
	}
	if err := canary.Promote(interruptible(), r.Options); err == nil || err.Error() != "interrupted: nothing was changed" {
		t.Errorf("promote that was interrupted: got %v, want an error that nothing was changed", err)
	}
	if got := r.stage(); got != "1" {
		t.Errorf("stage after an interrupt: got %s, want 1", got)
	}
	r.Delete = true
	if err := r.do(canary.Rollback); err != nil {
		t.Fatal(err)
	}
	if err := canary.Start(interruptible(), r.Options); err == nil || !strings.HasPrefix(err.Error(), "interrupted: the answers were not compared") {
		t.Errorf("start that was interrupted: got %v, want an error that the answers were not compared", err)
	}
}

// While a command waits, the API server may be away. After the deadline the command ends,
// and a later one continues.
func TestCanaryPartition(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	r.advance(1)
	watched := &trigger{Writer: r.Out, at: "Wait until", then: func() { d.set(func() { d.away = true }) }}
	r.Out, r.Timeout = watched, 200*time.Millisecond
	err := r.do(canary.Promote)
	if want := "Wait until the pods of seamark-canary are ready: not complete after 200ms"; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "canary rollback") {
		t.Errorf("promote without the API server: got %v, want %q and what to do", err, want)
	}
	d.disarm()
	watched.then = func() {
		d.set(func() { d.away = true })
		time.AfterFunc(50*time.Millisecond, func() { d.disarm() })
	}
	r.Timeout = patience
	r.must(canary.Rollback, "coredns:2")
	r.must(canary.Promote, "coredns:2 seamark-canary:1")
}

// A trigger is a writer that calls a function when a text is written.
type trigger struct {
	io.Writer
	at   string
	then func()
}

func (w *trigger) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(w.at)) {
		w.then()
	}
	return w.Writer.Write(text)
}

// Pods of Seamark that never become ready end start, and a rollback does not wait for them.
func TestCanaryNeverReady(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	r.Image, r.Timeout = "registry.invalid/seamark:broken", 500*time.Millisecond
	if err := r.do(canary.Start); err == nil || !strings.Contains(err.Error(), "0 ready") {
		t.Errorf("start with an image that does not start: got %v, want an error with 0 ready", err)
	}
	r.Image, r.Timeout = "registry.invalid/seamark:1", patience
	r.must(canary.Start, "coredns:2") // replaces the image
	r.advanceFrom(1, 4)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"coredns","image":"registry.invalid/seamark:broken"}]}}}}`)
	if _, err := d.k.AppsV1().Deployments("kube-system").Patch(t.Context(), "seamark", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must(canary.Rollback, "coredns:2")
}

// Programs that would scale CoreDNS up again stop the last stage.
func TestCanaryAutoscalers(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	add(t, d.k.AutoscalingV2().HorizontalPodAutoscalers("kube-system"), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "dns"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "coredns"}},
	})
	proportional := kubeadmDeployment()
	proportional.Name, proportional.Namespace = "dns-autoscaler", "kube-system"
	labels := map[string]string{"k8s-app": "dns-autoscaler"}
	proportional.Labels, proportional.Spec.Selector.MatchLabels, proportional.Spec.Template.Labels = labels, labels, labels
	proportional.Spec.Template.Spec.Containers[0].Args = []string{"--namespace=kube-system", "--target=Deployment/coredns"}
	add(t, d.k.AppsV1().Deployments("kube-system"), proportional)
	r.advance(3)
	if want := "the HorizontalPodAutoscaler dns of coredns"; !strings.Contains(r.out.String(), want) {
		t.Errorf("promote: got\n%s\nwant a warning with %q", r.out.String(), want)
	}
	err := r.do(canary.Promote)
	if want := "kubectl -n kube-system scale deployment dns-autoscaler --replicas=0"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("promote: got %v, want an error with %q", err, want)
	}
}

// Objects of the same name that another tool has installed are not deleted, and the Service
// of the cluster's DNS least of all.
func TestCanaryDeletesOwn(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	r := d.run(t, "kube-system")
	foreign := service("seamark", "10.96.0.77")
	foreign.Namespace = "kube-system"
	add(t, d.k.CoreV1().Services("kube-system"), foreign)
	r.Delete = true
	if err := r.do(canary.Rollback); err == nil || !strings.Contains(err.Error(), "with the tool that has installed it") {
		t.Errorf("rollback --delete with another's Service: got %v, want an error", err)
	}
	r.Name = "kube-dns"
	if err := r.do(canary.Rollback); err == nil || !strings.Contains(err.Error(), "kube-dns is the cluster's DNS Service") {
		t.Errorf("rollback --delete --name kube-dns: got %v, want an error", err)
	}
	if list := must(d.k.CoreV1().Services("kube-system").List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 2 {
		t.Errorf("got %d Services, want 2", len(list.Items))
	}
}
