//go:build linux

package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

//go:embed files/*.corefile files/*.yaml files/*.toml files/*.json
var files embed.FS

// writeTemplate fills the embedded file of a name with data and writes it.
func writeTemplate(name, target string, data any) error {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, b.Bytes(), 0o644)
}

// makeCertificates has kubeadm write the certificates and the kubeconfigs.
func (c *cluster) makeCertificates(ctx context.Context) error {
	err := writeTemplate("kubeadm.yaml", c.file("kubeadm.yaml"), map[string]string{
		"Kubernetes": c.Options.Kubernetes, "PKI": c.file("pki"), "Control": controlAddress, "Node": nodeName(1),
		"Services": c.serviceNetworks(), "Pods": c.podNetworks(), "CoreDNS": corednsVersion,
	})
	if err != nil {
		return err
	}
	for _, phase := range []string{
		"certs all",
		"kubeconfig super-admin --kubeconfig-dir " + c.file(),
		"kubeconfig controller-manager --kubeconfig-dir " + c.file(),
		"kubeconfig scheduler --kubeconfig-dir " + c.file(),
	} {
		if _, err := c.kubeadm(ctx, "init phase "+phase); err != nil {
			return err
		}
	}
	if err := os.Rename(c.file("super-admin.conf"), c.file("admin.conf")); err != nil {
		return err
	}

	clients := map[string]string{"proxy.conf": "--client-name system:kube-proxy"}
	for n := range c.Options.Nodes {
		name := nodeName(n + 1)
		clients[name+".conf"] = "--org system:nodes --client-name system:node:" + name
	}
	for file, client := range clients {
		text, err := c.kubeadm(ctx, "kubeconfig user "+client)
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.file(file), text, 0o600); err != nil {
			return err
		}
	}

	// The kubeconfig of the machine's users leads to the relay.
	text, err := os.ReadFile(c.file("admin.conf"))
	if err != nil {
		return err
	}
	relay := fmt.Sprintf("127.0.0.1:%d", c.Options.Port)
	return os.WriteFile(c.file("kubeconfig"), bytes.ReplaceAll(text, []byte(apiServer), []byte(relay)), 0o600)
}

// kubeadm runs a command of kubeadm with the cluster's configuration.
func (c *cluster) kubeadm(ctx context.Context, command string) ([]byte, error) {
	args := append(strings.Fields(command), "--config", c.file("kubeadm.yaml"))
	return output(exec.CommandContext(ctx, "kubeadm", args...))
}

// kubectl runs a command of kubectl. On the machine the API server is reached through the relay.
func (c *cluster) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	config := "kubeconfig"
	if c.dir == root {
		config = "admin.conf"
	}
	args = append([]string{"--kubeconfig", c.file(config)}, args...)
	return output(exec.CommandContext(ctx, "kubectl", args...))
}

// do runs a command of kubectl without a use for its output.
func (c *cluster) do(ctx context.Context, args ...string) error {
	_, err := c.kubectl(ctx, args...)
	return err
}

// apply fills the embedded file of a name with data, and creates or changes the objects in it.
func (c *cluster) apply(ctx context.Context, name string, data any) error {
	if err := writeTemplate(name, c.file(name), data); err != nil {
		return err
	}
	return c.do(ctx, "apply", "-f", c.file(name))
}

// restore calls do with a context that outlives ctx: what a test has changed is restored after a signal, too.
func (c *cluster) restore(ctx context.Context, do func(context.Context) error) error {
	restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Options.Patience)
	defer cancel()
	return do(restore)
}

// remove deletes the objects of a file (-f) or of a kustomization (-k).
func (c *cluster) remove(ctx context.Context, option, file string) error {
	return c.restore(ctx, func(ctx context.Context) error {
		return c.do(ctx, "delete", option, file, "--ignore-not-found")
	})
}

// change runs a command of kubectl that changes a Deployment of kube-system, and waits for that.
func (c *cluster) change(ctx context.Context, deployment, command string) error {
	if err := c.do(ctx, append(strings.Fields(command), "-n", "kube-system")...); err != nil {
		return err
	}
	return c.rollout(ctx, "kube-system", deployment)
}

func (c *cluster) startEtcd(ctx context.Context) error {
	c.start("etcd", "etcd", "--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380")
	return nil // the API server waits for it
}

// startAPIServer starts it with the flags that kubeadm gives it.
func (c *cluster) startAPIServer(ctx context.Context) error {
	pki := func(name string) string { return c.file("pki", name) }
	c.start("kube-apiserver", "kube-apiserver",
		"--advertise-address", controlAddress,
		"--allow-privileged",
		"--authorization-mode", "Node,RBAC",
		"--client-ca-file", pki("ca.crt"),
		"--enable-admission-plugins", "NodeRestriction",
		// There is no kube-proxy beside it: it looks for the endpoints of Services itself.
		"--enable-aggregator-routing",
		"--enable-bootstrap-token-auth",
		"--etcd-servers", "http://127.0.0.1:2379",
		"--kubelet-client-certificate", pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key", pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file", pki("front-proxy-client.crt"),
		"--proxy-client-key-file", pki("front-proxy-client.key"),
		"--requestheader-allowed-names", "front-proxy-client",
		"--requestheader-client-ca-file", pki("front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-username-headers", "X-Remote-User",
		"--secure-port", "6443",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", pki("sa.pub"),
		"--service-account-signing-key-file", pki("sa.key"),
		"--service-cluster-ip-range", c.serviceNetworks(),
		"--tls-cert-file", pki("apiserver.crt"),
		"--tls-private-key-file", pki("apiserver.key"))

	err := c.await(ctx, "kube-apiserver", func() error { return c.do(ctx, "get", "--raw", "/readyz") })
	if err != nil {
		return err
	}

	// kubeadm init gives the API server its rights at kubelets in a phase that waits for its own
	// control plane. Until 1.35 they are those of the group.
	return c.do(ctx, "create", "clusterrolebinding", "kubeadm:apiserver-kubelet-client",
		"--clusterrole", "system:kubelet-api-admin", "--user", "kube-apiserver-kubelet-client",
		"--group", "kubeadm:cluster-admins")
}

func (c *cluster) startControllers(ctx context.Context) error {
	pki := func(name string) string { return c.file("pki", name) }
	manager, scheduler := c.file("controller-manager.conf"), c.file("scheduler.conf")
	c.start("kube-controller-manager", "kube-controller-manager",
		"--kubeconfig", manager, "--authentication-kubeconfig", manager, "--authorization-kubeconfig", manager,
		"--client-ca-file", pki("ca.crt"),
		"--cluster-signing-cert-file", pki("ca.crt"),
		"--cluster-signing-key-file", pki("ca.key"),
		"--controllers", "*,bootstrapsigner,tokencleaner",
		"--leader-elect=false",
		"--requestheader-client-ca-file", pki("front-proxy-ca.crt"),
		"--root-ca-file", pki("ca.crt"),
		"--service-account-private-key-file", pki("sa.key"),
		"--service-cluster-ip-range", c.serviceNetworks(),
		"--use-service-account-credentials")
	c.start("kube-scheduler", "kube-scheduler", "--leader-elect=false",
		"--kubeconfig", scheduler, "--authentication-kubeconfig", scheduler, "--authorization-kubeconfig", scheduler)

	return c.await(ctx, "kube-controller-manager", func() error { return c.do(ctx, "get", "serviceaccount", "default") })
}

// installDNS has kubeadm install CoreDNS.
func (c *cluster) installDNS(ctx context.Context) error {
	for _, phase := range []string{"upload-config kubeadm", "addon coredns"} {
		if _, err := c.kubeadm(ctx, "init phase "+phase+" --kubeconfig "+c.file("admin.conf")); err != nil {
			return err
		}
	}
	return c.rollout(ctx, "kube-system", "coredns")
}

// startClients starts a client with glibc and one with musl.
func (c *cluster) startClients(ctx context.Context) error {
	err := c.apply(ctx, "clients.yaml", map[string]string{"Glibc": glibcImage, "Musl": muslImage})
	if err != nil {
		return err
	}
	return errors.Join(c.rollout(ctx, "default", "client-glibc"), c.rollout(ctx, "default", "client-musl"))
}

// startKwok starts kwok, which simulates the kubelets of nodes that only the API server has.
// Their taint keeps other pods away.
func (c *cluster) startKwok(ctx context.Context) error {
	names := make([]string, c.Options.Fake)
	for n := range names {
		names[n] = fmt.Sprintf("kwok%d", n+1)
	}
	c.start("kwok", "kwok", "--kubeconfig", c.file("admin.conf"), "--config", c.file("kwok-stages.yaml"),
		"--node-lease-duration-seconds", "40",
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")

	if err := c.apply(ctx, "kwok.yaml", names); err != nil {
		return err
	}
	return c.await(ctx, "kwok", func() error { return c.countReady(ctx, c.Options.Nodes+c.Options.Fake) })
}

// rollout waits for a Deployment. The error has the events of its namespace.
func (c *cluster) rollout(ctx context.Context, namespace, deployment string) error {
	_, err := c.kubectl(ctx, "-n", namespace, "rollout", "status", "deployment/"+deployment,
		"--timeout", c.Options.Patience.String())
	if err == nil {
		return nil
	}
	events, _ := c.kubectl(ctx, "-n", namespace, "get", "events", "--sort-by", ".lastTimestamp",
		"-o", "custom-columns=OBJECT:.involvedObject.name,MESSAGE:.message", "--no-headers")
	return fmt.Errorf("%w\n%s", err, lastLines(string(events), 10))
}

// start runs a program as long as the cluster runs, and starts it again when it ends. Its
// output is in the log of its name.
func (c *cluster) start(name string, command ...string) {
	go func() {
		for {
			if err := c.runLogged(name, command); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			}
			time.Sleep(time.Second)
		}
	}()
}

func (c *cluster) runLogged(name string, command []string) error {
	log, err := os.OpenFile(c.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	fmt.Fprintf(log, "cluster: %s has ended (%v) and is started again\n", name, err)
	return nil
}

func (c *cluster) log(name string) string {
	return c.file("logs", strings.ReplaceAll(name, "/", "-")+".log")
}

// logEnds returns the last lines of the logs of a program, or of all programs of a node.
func (c *cluster) logEnds(name string) string {
	files, _ := filepath.Glob(c.file("logs", "*"+name+"*.log"))

	var ends strings.Builder
	for _, file := range files {
		if text, _ := os.ReadFile(file); len(text) > 0 {
			fmt.Fprintf(&ends, "\n%s ends with:\n%s", filepath.Base(file), lastLines(string(text), 10))
		}
	}
	return ends.String()
}

// await calls try until it succeeds. The error has the ends of the logs of name.
func (c *cluster) await(ctx context.Context, name string, try func() error) error {
	deadline := time.Now().Add(c.Options.Patience)
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("%w%s", err, c.logEnds(name))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
