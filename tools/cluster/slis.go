//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"syscall"
	"time"
)

// The suite slis measures what Kubernetes' scalability SLIs define for DNS, from a pod and while other
// pods of the suite operations send queries: how long a lookup takes, and how long after a change of a
// Service or of its ready endpoints the answer has it. Their objective for both is 30 s for changes in
// the 99th percentile; a bound for lookups is not defined.
const (
	sliChanges   = 200
	sliLookups   = 5000
	sliObjective = 30 * time.Second

	sliServices = 20 // headless, with simulated pods
	sliPods     = 25 // of each
)

func simulatedNodes(o options) string {
	if o.Fake == 0 {
		return "needs simulated nodes: KWOK=20"
	}
	return ""
}

// runSLIs measures for one server, beside pods of simulated nodes that are replaced all the time.
func (t *conformance) runSLIs(ctx context.Context, s server, of suite) error {
	if why := simulatedNodes(t.Options); why != "" {
		t.add(s, of, result{Name: "DNS latency and propagation", Outcome: skipped, Start: time.Now(), Message: why})
		return nil
	}
	if err := errors.Join(t.startLoad(ctx), t.startChurn(ctx)); err != nil {
		return err
	}
	p, err := t.startProbe(ctx)
	if err != nil {
		return err
	}
	defer p.stop()

	churn, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- t.churn(churn) }()

	for _, m := range []struct {
		name    string
		measure func(*probe, context.Context) (string, error)
	}{
		{"lookups from a pod", (*probe).lookUps},
		{"propagation of a Service with a ClusterIP", (*probe).services},
		{"propagation of a ready endpoint of a headless Service", (*probe).endpoints},
	} {
		if !t.options.Focus.MatchString(m.name) {
			continue
		}
		r := result{Name: m.name, Outcome: passed, Start: time.Now()}
		r.Message, err = m.measure(p, ctx)
		if r.Seconds = time.Since(r.Start).Seconds(); err != nil {
			r.Outcome, r.Message = failed, err.Error()
		}
		if ctx.Err() != nil {
			break
		}
		t.add(s, of, r)
	}

	stop()
	return errors.Join(<-ended, ctx.Err(), t.removeNamespaces(context.WithoutCancel(ctx)))
}

// startChurn makes headless Services with pods on simulated nodes.
func (t *conformance) startChurn(ctx context.Context) error {
	err := t.apply(ctx, "churn.yaml", map[string]any{"Services": make([]struct{}, sliServices), "Pods": sliPods})
	for i := range sliServices {
		if err != nil {
			break
		}
		err = t.rollout(ctx, "slis", fmt.Sprintf("churn-%d", i))
	}
	return err
}

// churn replaces the pods of one Service after the other until ctx ends.
func (t *conformance) churn(ctx context.Context) error {
	for i := 0; ; i++ {
		err := t.do(ctx, "-n", "slis", "delete", "pods", "--wait=false", "-l", fmt.Sprintf("app=churn-%d", i%sliServices))
		if ctx.Err() != nil || pause(ctx, time.Second) != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A probe measures from a pod, and changes objects through a proxy of kubectl.
type probe struct {
	commands io.WriteCloser
	answers  *json.Decoder
	api      string
	programs []*exec.Cmd
}

var proxyAddress = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)

// startProbe starts the program of runProbe in a pod of the load, and the proxy.
func (t *conformance) startProbe(ctx context.Context) (p *probe, err error) {
	p = new(probe)
	defer func() {
		if err != nil {
			p.stop()
		}
	}()

	in := t.kubectlProgram(ctx, "-n", "load", "exec", "-i", "deploy/load", "--", "/cluster", "probe")
	if p.commands, err = in.StdinPipe(); err != nil {
		return p, err
	}
	out, err := in.StdoutPipe()
	if err != nil {
		return p, err
	}
	if err := in.Start(); err != nil {
		return p, err
	}
	p.programs, p.answers = append(p.programs, in), json.NewDecoder(out)

	proxy := t.kubectlProgram(ctx, "proxy", "--port=0")
	said, err := proxy.StdoutPipe()
	if err != nil {
		return p, err
	}
	if err := proxy.Start(); err != nil {
		return p, err
	}
	p.programs = append(p.programs, proxy)
	line, err := bufio.NewReader(said).ReadString('\n')
	p.api = proxyAddress.FindString(line)
	if p.api == "" {
		return p, fmt.Errorf("kubectl proxy said %q: %w", line, cmp.Or(err, errors.New("it has no address")))
	}
	return p, nil
}

// kubectlProgram returns a command of kubectl that ends with ctx.
func (t *conformance) kubectlProgram(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", t.file("kubeconfig")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// stop ends the programs.
func (p *probe) stop() {
	for _, cmd := range p.programs {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
}

// ask sends a command, and returns the first answer to it.
func (p *probe) ask(format string, args ...any) (answer probed, err error) {
	if _, err := fmt.Fprintf(p.commands, format+"\n", args...); err != nil {
		return answer, err
	}
	return p.answer()
}

func (p *probe) answer() (answer probed, err error) {
	if err = p.answers.Decode(&answer); err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}

// create makes an object, and returns when the API server has acknowledged it.
func (p *probe) create(ctx context.Context, path string, object any) (time.Time, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return time.Time{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.api+path, bytes.NewReader(body))
	if err != nil {
		return time.Time{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	acknowledged := time.Now()
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return acknowledged, err
}

// lookUps measures lookups of a name of the cluster.
func (p *probe) lookUps(context.Context) (string, error) {
	a, err := p.ask("lookup kubernetes.default.svc.cluster.local %d", sliLookups)
	if err == nil && a.Lost > 0 {
		err = fmt.Errorf("%d of %d lookups failed", a.Lost, sliLookups)
	}
	return fmt.Sprintf("of %d: p50 %.2f ms, p99 %.2f ms", sliLookups, milliseconds(a.P50), milliseconds(a.P99)), err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// propagation measures changes: each makes a name exist, and is called when the probe polls for that.
func (p *probe) propagation(ctx context.Context, name string, change func(name string) (time.Time, error)) (string, error) {
	var took []time.Duration
	for i := range sliChanges {
		name := fmt.Sprintf("%s-%d", name, i)
		if _, err := p.ask("await %s.slis.svc.cluster.local", name); err != nil {
			return "", err
		}
		acknowledged, err := change(name)
		if err != nil {
			return "", err
		}
		seen, err := p.answer()
		if err != nil {
			return "", err
		}
		took = append(took, max(0, seen.At.Sub(acknowledged))) // the server may have it before the reply is read here
	}

	p50, p99 := percentiles(took)
	text := fmt.Sprintf("of %d: p50 %.1f ms, p99 %.1f ms", sliChanges, milliseconds(p50), milliseconds(p99))
	if p99 > sliObjective {
		return "", fmt.Errorf("%s; want at most %v", text, sliObjective)
	}
	return text, nil
}

// object returns the common fields of an object.
func object(version, kind, name string, labels map[string]string) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "labels": labels}}
}

func (p *probe) service(ctx context.Context, name string, spec map[string]any) (time.Time, error) {
	o := object("v1", "Service", name, nil)
	spec["ports"] = []any{map[string]any{"port": 80}}
	o["spec"] = spec
	return p.create(ctx, "/api/v1/namespaces/slis/services", o)
}

// services measures how long after it was made a Service has its ClusterIP as an answer.
func (p *probe) services(ctx context.Context) (string, error) {
	return p.propagation(ctx, "service", func(name string) (time.Time, error) {
		return p.service(ctx, name, map[string]any{})
	})
}

// endpoints measures how long after its EndpointSlice was made a headless Service has the address. It has
// no selector, so that no controller makes slices.
func (p *probe) endpoints(ctx context.Context) (string, error) {
	return p.propagation(ctx, "headless", func(name string) (time.Time, error) {
		if _, err := p.service(ctx, name, map[string]any{"clusterIP": "None"}); err != nil {
			return time.Time{}, err
		}
		o := object("discovery.k8s.io/v1", "EndpointSlice", name, map[string]string{"kubernetes.io/service-name": name})
		o["addressType"] = "IPv4"
		o["endpoints"] = []any{map[string]any{"addresses": []string{"10.244.200.1"}, "conditions": map[string]any{"ready": true}}}
		o["ports"] = []any{map[string]any{"port": 80}}
		return p.create(ctx, "/apis/discovery.k8s.io/v1/namespaces/slis/endpointslices", o)
	})
}
