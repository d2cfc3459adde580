//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// commandTime is how long a check of a command may take.
const commandTime = time.Minute

// A commandCheck runs a command of seamark and checks what it shows.
type commandCheck struct {
	name string
	do   func(context.Context) error
}

// runCommands runs the commands of an operator with CoreDNS, and with Seamark.
func (t *conformance) runCommands(ctx context.Context, s server, of suite) error {
	return steps(
		func() error { return t.importPods(ctx) },
		func() error { return t.control(ctx) },
		func() error { return t.awaitOldPods(ctx) },
		func() error {
			return t.checkCommands(ctx, s, of, t.changeChecks("CoreDNS", "coredns, version "+corednsVersion, "diff"))
		},
		func() error { return t.install(ctx, s) },
		func() error {
			return t.with(ctx, policyScenario(withAdmin), func() error { return t.checkServers(ctx, s, of) })
		},
	)
}

// withAdmin returns a Corefile of servers that commands can look into.
func withAdmin(corefile string) string {
	return strings.Replace(corefile, "    errors\n", "    errors\n    admin\n", 1)
}

// checkServers checks the commands with Seamark, for a pod of a tenant.
func (t *conformance) checkServers(ctx context.Context, s server, of suite) error {
	err := errors.Join(t.rollout(ctx, "tenant-a", "client"), t.rollout(ctx, "tenant-b", "client"), t.awaitOldPods(ctx))
	if err != nil {
		return err
	}
	servers, err := t.dnsPods(ctx, "metadata.name")
	if err != nil {
		return err
	}
	pod, err := t.kubectl(ctx, "-n", "tenant-a", "get", "pods", "-l", "app=client",
		"-o", "jsonpath=tenant-a/{.items[0].metadata.name} {.items[0].status.podIP}")
	if err != nil {
		return err
	}

	name, address, _ := strings.Cut(string(pod), " ")
	checks := t.changeChecks("Seamark", "seamark, version ", "all")
	return t.checkCommands(ctx, s, of, append(checks, t.serverChecks(servers, name, address)...))
}

// awaitOldPods waits until the DNS pods of before a change have ended: commands find them, too.
func (t *conformance) awaitOldPods(ctx context.Context) error {
	return t.await(ctx, "kubelet", func() error {
		ending, err := t.dnsPods(ctx, "metadata.deletionTimestamp")
		if err == nil && len(ending) > 0 {
			err = fmt.Errorf("%d DNS pods have not ended", len(ending))
		}
		return err
	})
}

// checkCommands does checks one after the other, and adds the results.
func (t *conformance) checkCommands(ctx context.Context, s server, of suite, checks []commandCheck) error {
	for _, c := range checks {
		if !t.options.Focus.MatchString(c.name) {
			continue
		}
		r := result{Name: c.name, Outcome: passed, Start: time.Now()}
		limited, cancel := context.WithTimeout(ctx, commandTime)
		err := c.do(limited)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.Seconds = time.Since(r.Start).Seconds(); err != nil {
			r.Outcome, r.Message = failed, err.Error()
		}
		t.add(s, of, r)
	}
	return nil
}

// changeChecks are those of a change of the server. Documented differences fail with failOn all.
func (t *conformance) changeChecks(with, version, failOn string) []commandCheck {
	return []commandCheck{
		{"doctor with " + with + ": version, kube-proxy, kubeadm, and a Corefile that Seamark accepts",
			prints(t.seamarkCommand, "doctor", 0, "it is "+version, "address 10.96.0.10 and 2 pods, 2 of them ready",
				"mode "+t.Options.Proxy, "kubeadm manages", "Corefile: Seamark accepts it", "has all permissions")},
		{"diff with " + with + ": the answers are those of the objects",
			prints(t.seamarkCommand, "diff --quiet --transport port-forward --fail-on "+failOn, 0,
				`: [1-9]\d* same, 0 differ,`)},
	}
}

// serverChecks are those of running servers. The pod is a client of tenant-a.
func (t *conformance) serverChecks(servers []string, pod, address string) []commandCheck {
	const selected = " --selector k8s-app=kube-dns" // the pods do not have the labels of Seamark's Deployment
	const web, nothing = `web\.tenant-a\.svc\.cluster\.local\. `, `cluster\.local\. A: NXDOMAIN .*`
	here, onNode := t.seamarkCommand, func(ctx context.Context, args ...string) *exec.Cmd {
		return t.onNode(ctx, 1, append([]string{"seamark"}, args...)...) // where the Service's address is reached
	}

	return []commandCheck{
		{"check: the cluster's Corefile is valid", prints(here, "check --from-cluster", 0, "Corefile: OK")},
		{"status: each server is healthy",
			prints(here, "status"+selected, 0, strings.Join(servers, ": Healthy(?s:.*)")+": Healthy")},
		{"records: those of a Service",
			prints(here, "records --type A --name web.tenant-a"+selected, 0, web+`30 IN A 10\.96\.201\.1\n`)},

		{"explain: a Service's short name in a pod", prints(here, "explain web --pod "+pod+selected, 0,
			web+"A from "+regexp.QuoteMeta(address), `Service tenant-a/web has 10\.96\.201\.1`)},
		{"explain: a misspelled name in a pod, and the right one", prints(here, "explain wbe --pod "+pod+selected, 1,
			"namespace tenant-a has no Service named wbe", "did you mean "+strings.TrimSpace(web))},
		{"query: a Service's short name in a pod", prints(onNode, "query web --pod "+pod, 0,
			web+`A: NOERROR from 10\.96\.0\.10:53 in \S+\n +`+web+`30 IN A 10\.96\.201\.1\n`)},
		{"query: a name that does not exist, in each search domain", prints(onNode, "query wbe A --pod "+pod, 1,
			`(?s)wbe\.tenant-a\.svc\.`+nothing+`wbe\.svc\.`+nothing+`wbe\.`+nothing+`wbe\. A: `)},

		{"tail: the queries of a pod, with its name, and of no other", func(ctx context.Context) error {
			return t.tail(ctx, "tail --pods --client "+address+selected, pod, len(servers))
		}},
		{"top: names that pods look up, and the pods", func(ctx context.Context) error {
			err := errors.Join(t.lookUpOwn(ctx, "tenant-a"), t.lookUpOwn(ctx, "tenant-b"))
			return errors.Join(err, prints(here, "top --pods --limit 100"+selected, 0, ownName,
				pod+" +Deployment/client", "tenant-b/client-.* +Deployment/client")(ctx))
		}},
		{"ui: pages with data of the cluster, for one browser", func(ctx context.Context) error {
			return t.ui(ctx, "ui --no-browser"+selected)
		}},
	}
}

// prints returns a check of the exit status of a command, and that its output matches expressions.
func prints(
	program func(context.Context, ...string) *exec.Cmd, args string, status int, want ...string,
) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := program(ctx, strings.Fields(args)...)
		interruptible(cmd)
		out, err := cmd.CombinedOutput()
		for _, w := range want {
			if cmd.ProcessState.ExitCode() != status || !regexp.MustCompile(w).Match(out) {
				return fmt.Errorf("seamark %s: got %q (%v), want status %d and %s", args, out, err, status, w)
			}
		}
		return nil
	}
}

// whileRunning starts a command, calls use, and ends the command as ctrl-C does. The function await waits for output
// that matches an expression, and returns it and its submatches.
func (t *conformance) whileRunning(
	ctx context.Context, args string, use func(await func(expression string) ([]string, error)) error,
) error {
	out, err := os.Create(t.file("command.out"))
	if err != nil {
		return err
	}
	defer out.Close()
	running, interrupt := context.WithCancel(ctx)
	defer interrupt()
	cmd := t.seamarkCommand(running, strings.Fields(args)...)
	interruptible(cmd)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}

	err = use(func(expression string) ([]string, error) {
		for {
			text, _ := os.ReadFile(out.Name())
			if match := regexp.MustCompile(expression).FindStringSubmatch(string(text)); match != nil {
				return match, nil
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return nil, fmt.Errorf("seamark %s: got %q, want %s (%w)", args, text, expression, err)
			}
		}
	})
	interrupt()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		err = errors.Join(err, fmt.Errorf("seamark %s: got status %d after ctrl-C, want 0", args, code))
	}
	return err
}

// ownName is a name that only the checks of tail and top look up.
const ownName = "www.example.com"

func (t *conformance) lookUpOwn(ctx context.Context, tenant string) error {
	_, err := t.dig(ctx, rule{pod: tenant + "/client", query: ownName + " A"})
	return err
}

// tail has two pods look a name up. The query of the other pod comes before the last one that is shown.
func (t *conformance) tail(ctx context.Context, args, pod string, servers int) error {
	return t.whileRunning(ctx, args, func(await func(string) ([]string, error)) error {
		if _, err := await(fmt.Sprintf("(?s)(Showing the queries.*){%d}", servers)); err != nil {
			return err
		}
		for _, tenant := range []string{"tenant-a", "tenant-b", "tenant-a"} {
			if err := t.lookUpOwn(ctx, tenant); err != nil {
				return err
			}
		}
		out, err := await(`(?s)^.*( A +NOERROR +\S+ +` + ownName + `\. \w+ ` + pod + ` Deployment/client\n.*){2,}$`)
		if err == nil && strings.Count(out[0], ownName) != strings.Count(out[0], pod) {
			err = fmt.Errorf("seamark %s: got %q, want queries of %s only", args, out[0], pod)
		}
		return err
	})
}

// ui opens pages as a browser does, and the first one again without the cookie that a browser has then.
func (t *conformance) ui(ctx context.Context, args string) error {
	return t.whileRunning(ctx, args, func(await func(string) ([]string, error)) error {
		address, err := await(`(http://127\.0\.0\.1:\d+/)open/\w+`)
		if err != nil {
			return err
		}
		cookies := t.file("ui.cookies")
		for _, page := range []struct{ args, want string }{
			{"--cookie-jar " + cookies + " " + address[0], `Records of <span class="name">cluster.local`},
			{"--cookie " + cookies + " " + address[1] + "records?name=web.tenant-a", "10.96.201.1"},
			{address[0], "which works once"},
		} {
			cmd := exec.CommandContext(ctx, "curl", strings.Fields("--silent --show-error --noproxy * --location "+page.args)...)
			text, err := output(cmd)
			if err != nil || !strings.Contains(string(text), page.want) {
				return fmt.Errorf("curl %s: got %q (%v), want %s", page.args, text, err, page.want)
			}
		}
		return nil
	})
}
