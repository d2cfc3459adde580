package canary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/servers"
)

// kubeDNS returns the index of the container that runs kube-dns, -1 if the Deployment is of another server.
func (d *deployment) kubeDNS() int {
	containers := d.Spec.Template.Spec.Containers
	if slices.ContainsFunc(containers, func(c servers.Container) bool { return corefile(c) != "" }) {
		return -1
	}
	return slices.IndexFunc(containers, func(c servers.Container) bool {
		name, _ := c.Program()
		return name == servers.KubeDNS
	})
}

// replaceKubeDNS makes each container of the copy of a kube-dns pod run Seamark in place of its program, with the
// program's arguments, as deploy/kube-dns/patches do.
func (c *command) replaceKubeDNS(old *deployment, copies []any) error {
	for i, from := range old.Spec.Template.Spec.Containers {
		name, args := from.Program()
		run, ok := copies[i].(object)
		switch {
		case name == "" && from.IsNamed():
			return fmt.Errorf("the container %s has a command that is none of kube-dns's programs: %s", from.Name,
				strings.Join(from.Command, " "))
		case name == "":
			continue
		case name == servers.Dnsmasq:
			return fmt.Errorf("the container %s runs dnsmasq without dnsmasq-nanny, which Seamark does not replace alone:"+
				" see deploy/kube-dns/README.md", from.Name)
		case !ok:
			continue // only checked
		}

		run["image"], run["command"], run["args"] = c.Image, []any{"/seamark", name}, args
		switch name {
		case servers.KubeDNS:
			run["args"] = withAdmin(args)
		case servers.Nanny:
			// It binds port 53 as root with every container runtime, as dnsmasq's image does. dnsmasq needed
			// SETGID to change its user.
			security := at(run, "securityContext")
			security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"], security["runAsUser"] = false, true, 0
			security["capabilities"] = object{"add": []any{"NET_BIND_SERVICE"}, "drop": []any{"ALL"}}
		}
		allowPort(run)
	}
	return nil
}

// checkKubeDNS checks the flags and the ConfigMap of the old kube-dns, and keeps the Corefile that they convert to.
func (c *command) checkKubeDNS(ctx context.Context, s *state) (problems, warnings []string) {
	if err := c.replaceKubeDNS(s.old, make([]any, len(s.old.Spec.Template.Spec.Containers))); err != nil {
		return []string{err.Error()}, nil
	}
	if _, err := c.metrics(s.old); err != nil {
		problems = append(problems, err.Error())
	}
	for _, container := range s.old.Spec.Template.Spec.Containers {
		if name, _ := container.Program(); name == servers.Nanny {
			warnings = append(warnings, "kube-dns's metrics do not count the names that dnsmasq-nanny forwards: look some up"+
				" at Seamark's own Service before you promote")
		}
	}
	if err := c.convert(ctx, s); err != nil {
		problems = append(problems, err.Error())
	}
	return problems, warnings
}

// convert converts the Deployment and the ConfigMaps that it mounts or names.
func (c *command) convert(ctx context.Context, s *state) error {
	from, err := s.old.object()
	if err != nil {
		return err
	}
	from["apiVersion"], from["kind"] = "apps/v1", "Deployment" // which the items of a list do not have
	objects := [][]byte{encode(from)}

	named := servers.Flag(s.old.kubeDNSArguments(), "config-map")
	names := map[string]bool{cmp.Or(named, "kube-dns"): true}
	for _, container := range s.old.Spec.Template.Spec.Containers {
		for _, m := range s.old.configMaps(container) {
			names[m.Name] = true
		}
	}
	for name := range names {
		path := c.path("configmaps", name)
		if name == named {
			other := *c
			other.Namespace = cmp.Or(servers.Flag(s.old.kubeDNSArguments(), "config-map-namespace"), "kube-system")
			path = other.path("configmaps", name)
		}
		text, err := c.API.Get(ctx, path)
		switch {
		case err == nil:
			objects = append(objects, text)
		case !apiserver.IsNotFound(err):
			return err
		}
	}

	s.corefile, err = c.Convert(objects)
	return err
}

// kubeDNSArguments returns the arguments of kube-dns.
func (d *deployment) kubeDNSArguments() (args []string) {
	if i := d.kubeDNS(); i >= 0 {
		_, args = d.Spec.Template.Spec.Containers[i].Program()
	}
	return args
}

// dnsPort returns the port of a pod that answers for the cluster: that to which the Service maps port 53, but with
// kube-dns not that of dnsmasq, which has a cache and the names of the pod's /etc/hosts.
func (s *state) dnsPort() string {
	if s.old.kubeDNS() >= 0 {
		return cmp.Or(servers.Flag(s.old.kubeDNSArguments(), "dns-port"), "53")
	}
	for _, p := range s.service.Spec.Ports {
		if p["port"] != 53.0 { // a number of JSON
			continue
		}
		switch target := p["targetPort"].(type) {
		case float64:
			return fmt.Sprint(target)
		case string:
			protocol, _ := p["protocol"].(string)
			if n := s.old.namedPort(target, cmp.Or(protocol, "TCP")); n > 0 {
				return fmt.Sprint(n)
			}
		}
	}
	return "53"
}

// namedPort returns the number of a containers' port, 0 if there is none. Ports of several protocols may have one name.
func (d *deployment) namedPort(name, protocol string) int {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && cmp.Or(p.Protocol, "TCP") == protocol {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// A metricsPage is the page of a pod that has the metrics of its queries.
type metricsPage struct {
	port  string
	path  string
	names string // the beginning of kube-dns's names; "" for those of CoreDNS
}

// metrics returns where the pods of both servers have the metrics of their queries: Seamark has those of the old
// server, at its port.
func (c *command) metrics(old *deployment) (p metricsPage, err error) {
	p = metricsPage{port: "9153", path: "/metrics"}
	if i := old.kubeDNS(); i >= 0 {
		env := map[string]string{}
		for _, e := range old.Spec.Template.Spec.Containers[i].Env {
			if strings.HasPrefix(e.Name, "PROMETHEUS_") && (len(e.ValueFrom) > 0 || strings.Contains(e.Value, "$(")) {
				return p, fmt.Errorf("the variable %s of kube-dns is a reference, which is not followed: the metrics cannot"+
					" be compared", e.Name)
			}
			env[e.Name] = e.Value
		}
		p = metricsPage{
			port: env["PROMETHEUS_PORT"], path: cmp.Or(env["PROMETHEUS_PATH"], p.path),
			names: cmp.Or(env["PROMETHEUS_NAMESPACE"], "skydns") + "_" + cmp.Or(env["PROMETHEUS_SUBSYSTEM"], "skydns") + "_dns_",
		}
	}

	if c.MetricsPort > 0 {
		p.port = fmt.Sprint(c.MetricsPort)
	}
	if p.port == "" {
		return p, errors.New("kube-dns serves no metrics that could be compared, as it has no variable PROMETHEUS_PORT")
	}
	return p, nil
}
