//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A rule is what a name resolves to in a pod, perhaps after a change of the objects.
type rule struct {
	name   string
	pod    string   // NAMESPACE/DEPLOYMENT of the client; client-glibc of default if ""
	query  string   // arguments of dig; the last two are the name and the type
	want   string   // the reply, as parseDig returns it
	always bool     // each of many queries must have the reply at once; otherwise one within the deadline
	before []string // arguments of kubectl
}

// manyQueries are the queries of a rule that is always to hold, each from a source port of its own, so
// that kube-proxy spreads them over the servers.
const manyQueries = 20

// noReply is the reply of a server that does not reply.
const noReply = "no reply"

// checkRules checks rules one after the other, and adds the results.
func (t *conformance) checkRules(ctx context.Context, s server, of suite, prefix string, rules []rule) error {
	for _, rule := range rules {
		if !t.options.Focus.MatchString(rule.name) && rule.before == nil {
			continue
		}
		r := t.checkRule(ctx, rule)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.Name = prefix + r.Name
		t.add(s, of, r)
	}
	return nil
}

// checkRule queries until the reply is the expected one, longer than the caches keep an answer.
func (t *conformance) checkRule(ctx context.Context, rule rule) result {
	r := result{Name: rule.name, Outcome: failed, Start: time.Now()}
	if rule.before != nil {
		// Of objects of the same second none is older: what a rule makes is younger than what is there.
		if err := pause(ctx, time.Second); err != nil {
			r.Message = err.Error()
			return r
		}
		if err := t.do(ctx, rule.before...); err != nil {
			r.Message = err.Error()
			return r
		}
	}

	for deadline := r.Start.Add(45 * time.Second); ; {
		replies, err := t.dig(ctx, rule)
		r.Seconds = time.Since(r.Start).Seconds()
		unexpected := func(reply string) bool { return reply != rule.want }
		if len(replies) > 0 && !slices.ContainsFunc(replies, unexpected) {
			r.Outcome, r.Message = passed, ""
			return r
		}
		r.Message = fmt.Sprintf("%s: got %q, want %s (%v)", rule.query, slices.Compact(replies), rule.want, err)
		if rule.always || time.Now().After(deadline) || pause(ctx, time.Second) != nil {
			return r
		}
	}
}

// dig sends the queries of a rule and returns the replies. One that is missing is noReply.
func (t *conformance) dig(ctx context.Context, rule rule) ([]string, error) {
	namespace, deployment := "default", "client-glibc"
	if rule.pod != "" {
		namespace, deployment, _ = strings.Cut(rule.pod, "/")
	}
	args := append([]string{"-n", namespace, "exec", "deploy/" + deployment, "--", "dig", "+noall", "+comments", "+answer"},
		strings.Fields(rule.query)...)
	question, want := args[len(args)-2:], 1
	for ; rule.always && want < manyQueries; want++ {
		args = append(args, question...)
	}

	out, err := t.kubectl(ctx, args...)
	replies := parseDig(string(out))
	// dig has status 9 if a server has not replied.
	if err != nil && strings.Contains(err.Error(), "exit code 9") {
		err = nil
		for len(replies) < want {
			replies = append(replies, noReply)
		}
	}
	if err == nil && len(replies) != want {
		err = fmt.Errorf("%d replies to %d queries", len(replies), want)
	}
	if err != nil {
		replies = nil
	}
	return replies, err
}

// parseDig returns the replies in the output of dig: the response code, the text of the extended error, and
// the data of the records, sorted, without the priorities and weights of SRV records, which the
// specifications do not determine.
func parseDig(out string) (replies []string) {
	_, rest, more := strings.Cut(out, ";; Got answer:")
	for more {
		var reply string
		reply, rest, more = strings.Cut(rest, ";; Got answer:")

		var status string
		var records []string
		for line := range strings.Lines(reply) {
			fields := strings.Fields(line)
			if _, rest, ok := strings.Cut(line, "status: "); ok {
				status, _, _ = strings.Cut(rest, ",")
			}
			if _, rest, ok := strings.Cut(line, "; EDE: "); ok {
				status += " EDE " + strings.Fields(rest)[0]
			}
			if len(fields) < 5 || strings.HasPrefix(line, ";") {
				continue
			}
			data := fields[4:]
			if fields[3] == "SRV" {
				data = fields[6:]
			}
			records = append(records, strings.Join(data, " "))
		}
		slices.Sort(records)
		replies = append(replies, strings.TrimSpace(status+" "+strings.Join(records, ", ")))
	}
	return replies
}

// A scenario is what a suite adds to the cluster.
type scenario struct {
	definitions []string            // files with kinds
	objects     []string            // names of templates
	data        any                 // for the templates
	corefile    func(string) string // changes the cluster's Corefile; nil for none
}

// with adds a scenario to the cluster, calls do, and removes the scenario.
func (t *conformance) with(ctx context.Context, sc scenario, do func() error) (err error) {
	corefile, err := t.readCorefile(ctx)
	if err != nil {
		return err
	}

	var kinds, objects []string // arguments
	for _, file := range sc.definitions {
		kinds = append(kinds, "-f", file)
	}
	for _, name := range sc.objects {
		objects = append(objects, "-f", t.file(name))
		if err := writeTemplate(name, t.file(name), sc.data); err != nil {
			return err
		}
	}

	// The other server does not start with directives of Seamark, and namespaces end slowly.
	defer func() {
		restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*t.Options.Patience)
		defer cancel()
		remove := []string{"delete", "--ignore-not-found"}
		err = errors.Join(err, t.setCorefile(restore, corefile), t.do(restore, slices.Concat(remove, objects, kinds)...))
	}()
	if kinds != nil {
		// The kinds of some projects are too large for the annotation of a client's apply.
		apply, wait := []string{"apply", "--server-side"}, []string{"wait", "--for=condition=Established"}
		if err := errors.Join(t.do(ctx, append(apply, kinds...)...), t.do(ctx, append(wait, kinds...)...)); err != nil {
			return err
		}
	}
	if err := t.do(ctx, append([]string{"apply"}, objects...)...); err != nil {
		return err
	}
	if sc.corefile != nil {
		if err := t.setCorefile(ctx, sc.corefile(corefile)); err != nil {
			return err
		}
	}
	return do()
}

func (t *conformance) readCorefile(ctx context.Context) (string, error) {
	out, err := t.kubectl(ctx, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	return string(out), err
}

// setCorefile changes the Corefile and restarts the DNS servers.
func (t *conformance) setCorefile(ctx context.Context, corefile string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"Corefile": corefile}})
	if err != nil {
		return err
	}
	err = t.do(ctx, "-n", "kube-system", "patch", "configmap", "coredns", "--type=merge", "-p", string(patch))
	return errors.Join(err, t.restartRollout(ctx))
}
