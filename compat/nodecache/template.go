package nodecache

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
)

// The variables of a template.
const (
	localDNS   = "__PILLAR__LOCAL__DNS__"
	dnsServer  = "__PILLAR__DNS__SERVER__"
	clusterDNS = "__PILLAR__CLUSTER__DNS__"
	upstreams  = "__PILLAR__UPSTREAM__SERVERS__"
	endpoint   = "__PROMETHEUS__ENDPOINT__"
)

var (
	variable  = regexp.MustCompile(`__(?:PILLAR|PROMETHEUS)__[A-Z_]+__`)
	localPort = regexp.MustCompile(localDNS + `(:[0-9])`)
	forceTCP  = regexp.MustCompile(`\bforce_tcp\b`)
	health    = regexp.MustCompile(`\bhealth\b(?:[ \t]+(:[0-9]+))?`)
)

func isVariable(text string) bool { return variable.MatchString(text) }

// generate returns the Corefile for a template and the data of kube-dns's ConfigMap.
// file is the template's name, for errors. Lines keep their numbers.
func (f Flags) generate(file, template string, c config, getenv func(string) string) (string, error) {
	local, err := f.Addresses()
	if err != nil {
		return "", err
	}
	read := corefile.ReadText(file, []byte(template))
	if read.Err != nil {
		return "", read.Err
	}

	values := map[string]string{
		localDNS: join(local), dnsServer: "", upstreams: "/etc/resolv.conf", endpoint: f.Prometheus,
	}
	if len(c.upstreams) > 0 {
		values[upstreams] = strings.Join(c.upstreams, " ")
	}
	name := strings.ToUpper(strings.ReplaceAll(f.UpstreamService, "-", "_")) + "_SERVICE_HOST"
	cluster, clusterErr := netip.ParseAddr(getenv(name))
	if clusterErr == nil {
		values[clusterDNS] = cluster.String()
	}

	var errs []error
	for _, t := range tokens(read.Servers) {
		for _, v := range variable.FindAllString(t.Text, -1) {
			switch _, known := values[v]; {
			case known:
			case v == clusterDNS:
				errs = append(errs, t.Errorf("", "%s: the environment variable %s has no address: "+
					"create the Service %s in the pod's namespace before the pod starts, "+
					"or set -upstreamsvc to the Service of the cluster's DNS servers", v, name, f.UpstreamService))
			default:
				errs = append(errs, t.Errorf("", "%s is not known here: "+
					"replace it in the template, as the manifest's instructions do", v))
			}
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}

	lines := strings.Split(template, "\n")
	adapted := map[int]bool{} // lines: a snippet may be imported more than once
	for _, s := range read.Servers {
		for _, d := range s.Directives {
			if d.File == file && !adapted[d.Line] {
				f.adapt(d, file, lines, len(c.upstreams) > 0, local[0])
				adapted[d.Line] = true
			}
		}
	}
	text := localPort.ReplaceAllString(strings.Join(lines, "\n"), hostOf(local[0])+"$1")
	text = variable.ReplaceAllStringFunc(text, func(v string) string {
		if value, known := values[v]; known {
			return value
		}
		return v // in a comment
	})
	return text + c.blocks(local), nil
}

// adapt changes the lines of a directive. Upstreams of the ConfigMap are queried over
// UDP, because some have no TCP. health without an IP address listens on the local
// address: other programs of the node may use the port on theirs.
func (f Flags) adapt(d corefile.Directive, file string, lines []string, custom bool, local netip.Addr) {
	replace := func(t corefile.Token, pattern *regexp.Regexp, with func(string) string) {
		if t.File == file && t.Line > 0 && t.Line <= len(lines) {
			done := false
			lines[t.Line-1] = pattern.ReplaceAllStringFunc(lines[t.Line-1], func(found string) string {
				if done {
					return found
				}
				done = true
				return with(found)
			})
		}
	}

	switch d.Text {
	case "forward":
		upstream := slices.ContainsFunc(d.Args, func(a corefile.Token) bool {
			return strings.Contains(a.Text, upstreams)
		})
		for _, o := range d.Body {
			if custom && upstream && o.Text == "force_tcp" {
				replace(o.Token, forceTCP, func(string) string { return "" })
			}
		}

	case "health":
		if len(d.Args) == 0 || strings.HasPrefix(d.Args[0].Text, ":") {
			replace(d.Token, health, func(found string) string {
				_, port, given := strings.Cut(found, ":")
				if !given {
					port = fmt.Sprint(f.HealthPort)
				}
				return "health " + hostOf(local) + ":" + port
			})
		}
	}
}

// tokens returns all words of server blocks.
func tokens(servers []corefile.Server) (all []corefile.Token) {
	var walk func(ds []corefile.Directive)
	walk = func(ds []corefile.Directive) {
		for _, d := range ds {
			all = append(append(all, d.Token), d.Args...)
			walk(d.Body)
		}
	}
	for _, s := range servers {
		all = append(all, s.Keys...)
		walk(s.Directives)
	}
	return all
}

// join returns addresses separated by spaces.
func join(addrs []netip.Addr) string {
	var words []string
	for _, a := range addrs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// hostOf returns an address as it is written before :PORT.
func hostOf(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
