package cmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/operate/resolvconf"
	"github.com/spf13/cobra"
)

// resolvconfFlags are the flags of the command resolvconf. Settings of the
// kubelet with the same names have the same syntax.
type resolvconfFlags struct {
	pod, policy, namespace string
	hostNetwork            bool
	domain, nodeFile       string
	dns                    []string
	output                 string
}

func (p *program) resolvconfCommand() *cobra.Command {
	var r resolvconfFlags
	c := &cobra.Command{
		Use:   "resolvconf",
		Short: "Print the /etc/resolv.conf that a kubelet writes for a pod",
		Long: `Resolvconf prints the /etc/resolv.conf that a kubelet writes for a pod, from the
pod's manifest, the kubelet's settings and the node's own file. Lines on standard
error, which begin with #, list what the kubelet omits or reports in an event; with
--output json they are comments of the object.`,
		Example: `  seamark resolvconf --cluster-dns 10.96.0.10
  seamark resolvconf --cluster-dns 10.96.0.10 --pod deployment.yaml
  kubectl get pod web -o yaml | seamark resolvconf --cluster-dns 10.96.0.10 --pod -`,
		Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error { return p.resolvconf(r) },
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&r.pod, "pod", "",
		"manifest (`FILE`, YAML or JSON) of a Pod or an object with a pod template; \"-\" for standard input")
	f.StringVar(&r.policy, "dns-policy", "",
		"`POLICY` of a pod without one: ClusterFirst, ClusterFirstWithHostNet, Default or None (default ClusterFirst)")
	f.StringVar(&r.namespace, "namespace", "", "namespace of a manifest without one (default \"default\")")
	f.BoolVar(&r.hostNetwork, "host-network", false, "hostNetwork of a pod that does not set it")
	f.StringVar(&r.domain, "cluster-domain", "cluster.local", "the kubelet's clusterDomain; empty for none")
	f.StringSliceVar(&r.dns, "cluster-dns", nil, "the kubelet's clusterDNS: `IP,...`; may be repeated")
	f.StringVar(&r.nodeFile, "node-file", "/etc/resolv.conf", "`FILE` of the kubelet's resolvConf; empty for none")
	outputFlag(c, &r.output)
	complete(c, "dns-policy", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
	return c
}

func (p *program) resolvconf(r resolvconfFlags) error {
	kubelet, flags, err := r.parse()
	if err != nil {
		return err
	}

	c, comments, err := r.form(p.in, kubelet, flags)
	json := r.output == "json" && err == nil
	if !json {
		p.showComments(comments)
	}
	switch {
	case json:
		err = indented(p.out, newResolvconf(c, comments))
	case err == nil:
		_, err = io.WriteString(p.out, c.String())
	}
	return failed(err)
}

// A resolvconfJSON is the output of --output json.
type resolvconfJSON struct {
	Nameservers []string `json:"nameservers"`
	Search      []string `json:"search"`
	Options     []string `json:"options"` // as in the file: ndots:5
	Comments    []string `json:"comments"`
}

func newResolvconf(c resolvconf.Config, comments []string) resolvconfJSON {
	out := resolvconfJSON{
		append([]string{}, c.Nameservers...), append([]string{}, c.Searches...), []string{}, append([]string{}, comments...),
	}
	for _, o := range c.Options {
		out.Options = append(out.Options, o.String())
	}
	return out
}

// parse checks the flags. It does not read files.
func (r resolvconfFlags) parse() (k resolvconf.Kubelet, flags resolvconf.Flags, err error) {
	var errs []error
	refuse := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}

	k = resolvconf.Kubelet{ClusterDomain: r.domain, File: r.nodeFile}
	if r.domain != "" { // the kubelet accepts any text
		refuse("cluster-domain", resolvconf.CheckDomain(strings.ToLower(r.domain)))
	}

	for _, text := range r.dns {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil || addr.Zone() != "" {
			refuse("cluster-dns", fmt.Errorf("want an IP address, got %q", text))
		}
		k.ClusterDNS = append(k.ClusterDNS, addr)
	}

	flags = resolvconf.Flags{Namespace: r.namespace, HostNetwork: r.hostNetwork}
	if r.namespace != "" {
		refuse("namespace", resolvconf.CheckNamespace(r.namespace))
	}
	if r.policy != "" {
		flags.Policy, err = resolvconf.ParsePolicy(r.policy)
		refuse("dns-policy", err)
	}
	if err := oneOf("output", r.output, "text", "json"); err != nil {
		errs = append(errs, err)
	}
	return k, flags, errors.Join(errs...)
}

// form reads the files that the flags name and returns the pod's resolv.conf.
// After an error it also returns the comments so far.
func (r resolvconfFlags) form(
	in io.Reader, k resolvconf.Kubelet, flags resolvconf.Flags,
) (c resolvconf.Config, comments []string, err error) {
	var m resolvconf.Manifest
	var errs []error
	if r.pod != "" {
		if m, comments, err = resolvconf.ReadManifest(r.pod, in); err != nil {
			errs = append(errs, err)
		}
	}
	if r.nodeFile != "" {
		node, more, err := resolvconf.ReadNode(r.nodeFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: set another file with --node-file, or none with --node-file=", err)
		}
		if err != nil {
			errs = append(errs, err)
		}
		k.Node, comments = &node, append(comments, more...)
	}
	if len(errs) > 0 {
		return c, comments, errors.Join(errs...)
	}

	pod, more, err := m.Pod(flags)
	comments = append(comments, more...)
	if err != nil {
		return c, comments, err
	}

	c, more = k.Form(pod)
	return c, append(comments, more...), nil
}
