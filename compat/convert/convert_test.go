package convert

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/operate/servers"
)

// Parts of the Corefiles of the two programs.
const (
	kubeText = `.:10053 {
    bind 0.0.0.0
    errors
    kubedns_status :8081
    chaos
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        fallthrough in-addr.arpa ip6.arpa
    }
    OTHERS
    cache
}
`
	masqText = `.:53 {
    bind 10.0.0.1
    errors
    cache 5
    OTHERS
}
`
	behind = "forward cluster.local 127.0.0.1:10053\nforward in-addr.arpa 127.0.0.1:10053\nforward ip6.arpa 127.0.0.1:10053\n"
	live   = "kubedns_config /kube-dns-config\n"
)

var directives = []string{"kubedns_config", "bind", "errors", "kubedns_status", "cache", "federation", "kubernetes", "forward"}

// lines returns the lines of a Corefile without closing braces and without the lines
// that all Corefiles of these tests share.
func lines(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch line {
		case "}", ".:53 {", "bind 10.0.0.1", "errors", "kubedns_status :8081", "cache 5", "fallthrough in-addr.arpa ip6.arpa":
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func TestCorefile(t *testing.T) {
	const (
		made   = "# Converted by seamark convert from Pod p: kube-dns, dnsmasq-nanny"
		one    = "# - one server replaces both, at the address of dnsmasq: nothing listens at 127.0.0.1:10053 any more\n"
		zones  = "kubernetes cluster.local in-addr.arpa ip6.arpa {\n"
		out    = "# - ConfigMap kube-dns: the Corefile contains its settings; repeat the conversion after a change, or use --follow\n"
		follow = "# - kubedns_config follows the ConfigMap mounted at /kube-dns-config: add this mount to the server's pod\n"
	)
	stub := map[string]string{"stubDomains": `{"acme.local": ["10.1.1.1"]}`}
	all := map[string]string{"stubDomains": `{"acme.local": ["10.1.1.1"]}`, "upstreamNameservers": `["8.8.8.8"]`, "federations": "f=a.b"}
	for _, c := range []struct {
		name, masq, kube string
		config           map[string]string
		want             string
	}{
		{"the manifest", behind + "forward . /etc/resolv.conf\n" + live, live, nil,
			made + ".\n" + one + follow + "kubedns_config /kube-dns-config\n" + zones + "forward . /etc/resolv.conf"},
		{"with a ConfigMap", behind + "forward . /etc/resolv.conf\nkubedns_config /nanny {\nresolver 127.0.0.1:10053\nmax_fails 3\n}\n", live, all,
			made + "; and ConfigMap kube-dns.\n" + one + out + "federation {\nf a.b\n" + zones + "forward acme.local 10.1.1.1:53 {\nmax_fails 3\nforward . 8.8.8.8:53 {\nmax_fails 3"},
		{"a server of the cluster", behind + "kubedns_config /kube-dns-config {\nresolver 127.0.0.1:10053\n}\n", live, map[string]string{"stubDomains": `{"a": ["ns.x.svc.cluster.local"]}`},
			made + "; and ConfigMap kube-dns.\n" + one + out + zones + "forward a ns.x.svc.cluster.local:53 {\nresolver 10.0.0.1:53\nforward . /etc/resolv.conf"},
		{"dnsmasq forwards everything to kube-dns", "forward . 127.0.0.1:10053\n", live, stub,
			made + "; and ConfigMap kube-dns.\n" + one + out + zones + "forward acme.local 10.1.1.1:53\nforward . /etc/resolv.conf"},
		{"everything, no ConfigMap", "forward . [::1]:10053 10.0.0.9:53\nforward a 127.0.0.1:10054\n", "forward . 9.9.9.9:53\n", nil,
			made + ".\n" + one + zones + "forward . 10.0.0.9:53\nforward a 127.0.0.1:10054"},
		{"everything, upstreams of kube-dns", "forward . 127.0.0.1:10053\n", "forward . 9.9.9.9:53\nfederation {\na b\n}\n", nil,
			made + ".\n" + one + "federation {\na b\n" + zones + "forward . 9.9.9.9:53"},
		{"kube-dns has other upstreams", behind + "forward . /etc/resolv.conf\n", "forward . 9.9.9.9:53 {\npolicy sequential\n}\n", nil,
			made + ".\n" + one + zones + "forward in-addr.arpa 9.9.9.9:53 {\npolicy sequential\nforward ip6.arpa 9.9.9.9:53 {\npolicy sequential\nforward . /etc/resolv.conf"},
		{"dnsmasq has no upstreams", behind, "forward . /etc/resolv.conf\n", nil,
			made + ".\n" + one + zones + "forward in-addr.arpa /etc/resolv.conf\nforward ip6.arpa /etc/resolv.conf"},
		{"dnsmasq has no upstreams, kube-dns has a ConfigMap", behind + "kubedns_config /kube-dns-config {\ndefault none\n}\n", live, nil,
			made + ".\n# - kube-dns forwarded names of in-addr.arpa that the cluster lacks to the upstreams in its ConfigMap; the new server forwards them to dnsmasq's upstreams\n" +
				"# - kube-dns forwarded names of ip6.arpa that the cluster lacks to the upstreams in its ConfigMap; the new server forwards them to dnsmasq's upstreams\n" +
				one + follow + "kubedns_config /kube-dns-config {\ndefault none\n" + zones[:len(zones)-1]},
		{"some zones", "forward cluster.local 127.0.0.1:10053\nforward 10.in-addr.arpa 127.0.0.1:10053\nforward . /etc/resolv.conf\n", "forward . /etc/resolv.conf\n", nil,
			made + ".\n# - dnsmasq forwards ip6.arpa to other servers: kube-dns's records in it were unreachable and are omitted\n" + one +
				"kubernetes cluster.local 10.in-addr.arpa {\nforward . /etc/resolv.conf"},
		{"no zone", "forward . 9.9.9.9:53\n", "forward . 9.9.9.9:53\n", nil,
			made + ".\n# - dnsmasq forwards no names of cluster.local to kube-dns at 127.0.0.1:10053; the new server answers them nevertheless\n" + one + zones + "forward . 9.9.9.9:53"},
		{"only kube-dns reads the ConfigMap", behind + "forward . 9.9.9.9:53\n", live, all,
			made + "; and ConfigMap kube-dns.\n" + one + out + "federation {\nf a.b\n" + zones + "forward in-addr.arpa 8.8.8.8:53\nforward ip6.arpa 8.8.8.8:53\nforward . 9.9.9.9:53"},
		{"only kube-dns follows the ConfigMap", behind + "forward . 9.9.9.9:53\n", live, nil,
			made + ".\n# - the Corefile does not follow kube-dns's ConfigMap, since dnsmasq does not read it: add it to the input for its federations\n" +
				"# - kube-dns forwarded names of in-addr.arpa that the cluster lacks to the upstreams in its ConfigMap; the new server forwards them to dnsmasq's upstreams\n" +
				"# - kube-dns forwarded names of ip6.arpa that the cluster lacks to the upstreams in its ConfigMap; the new server forwards them to dnsmasq's upstreams\n" +
				one + zones + "forward . 9.9.9.9:53"},
		{"only dnsmasq reads the ConfigMap", behind + "forward . 9.9.9.9:53\n" + live, "forward . 8.8.8.8:53\n", all,
			made + "; and ConfigMap kube-dns.\n" + one + "# - ConfigMap kube-dns: federations are omitted: only kube-dns reads them, and the input has no command line of it\n" + out +
				zones + "forward acme.local 10.1.1.1:53\nforward . 8.8.8.8:53"},
		{"no program reads the ConfigMap", behind + "forward . /etc/resolv.conf\n", "forward . /etc/resolv.conf\n", all,
			made + "; and ConfigMap kube-dns.\n" + one + "# - ConfigMap kube-dns: omitted, since none of these command lines reads it\n" + zones + "forward . /etc/resolv.conf"},
		{"a stub domain below the cluster's zone", behind + "forward a.cluster.local 10.0.0.1:53\nforward b.a.cluster.local 10.0.0.2:53\nforward . /etc/resolv.conf\n", "forward . /etc/resolv.conf\n", nil,
			made + ".\n" + one + "# - a.cluster.local is below the cluster's zone: the server forwards names in it that the cluster lacks\n" +
				zones + "fallthrough in-addr.arpa ip6.arpa a.cluster.local\nforward a.cluster.local 10.0.0.1:53\nforward b.a.cluster.local 10.0.0.2:53\nforward . /etc/resolv.conf"},
		{"the ConfigMap in two places", behind + "forward . /etc/resolv.conf\nkubedns_config /nanny {\nperiod 3s\n}\n", live, nil,
			made + ".\n# - the programs read the ConfigMap in two places, /nanny and /kube-dns-config: the conversion assumes that they are the same\n" + one + follow +
				"kubedns_config /kube-dns-config {\nperiod 3s\n" + zones + "forward . /etc/resolv.conf"},
		{"unknown keys", "", "", map[string]string{"x\ny": ""},
			made + "; and ConfigMap kube-dns.\n# - ConfigMap kube-dns: kube-dns ignores the key \"x\\ny\"\n"},
	} {
		conversion := Conversion{From: "Pod p", Order: directives, Parts: []Part{
			{Program: Program{Name: servers.KubeDNS}, Text: strings.Replace(kubeText, "OTHERS", c.kube, 1)},
			{Program: Program{Name: servers.Nanny}, Text: strings.Replace(masqText, "OTHERS", c.masq, 1)},
		}}
		if c.config != nil {
			conversion.Config = &ConfigMap{"ConfigMap kube-dns", "", "kube-dns", c.config}
		}
		result, err := conversion.Corefile()
		text := result.Corefile
		got := lines(text)
		if c.name == "unknown keys" {
			got = got[:min(len(got), len(c.want))]
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got error %v and\n%s\nwant\n%s", c.name, err, got, c.want)
		}
		if _, err := corefile.Parse("Corefile", []byte(text)); err != nil {
			t.Errorf("%s: parsing the Corefile: got error %v, want none", c.name, err)
		}
	}
}

// The Corefile of a single program, with its comments.
func TestCorefileSingleProgram(t *testing.T) {
	part := func(name, text string) Part {
		return Part{Program: Program{Name: name, Container: "c-" + name}, Text: text}
	}
	kube := part(servers.KubeDNS, strings.Replace(kubeText, "OTHERS", live, 1))
	masq := part(servers.Dnsmasq, strings.Replace(masqText, "OTHERS", behind+live, 1))
	noted := kube
	noted.Program.Notes, noted.Notes, noted.ProcessFlags = []string{"n1\x00"}, []string{"n2"}, []string{"-v", "-k", "-v"}
	config := &ConfigMap{"ConfigMap kube-dns", "", "kube-dns", map[string]string{"federations": "a=b"}}
	for _, c := range []struct {
		name   string
		parts  []Part
		config *ConfigMap
		want   string // comments after the first, and some lines
		err    string
	}{
		{"kube-dns", []Part{kube, part(servers.Sidecar, "")}, nil, "# - kubedns_config follows the ConfigMap mounted at /kube-dns-config: add this mount to the server's pod\n" +
			"# - c-sidecar (sidecar) is not part of a Corefile: run seamark sidecar with its flags beside the server, or point probes to http://ADDRESS:8081/readiness\n.:10053 {\n", ""},
		{"kube-dns with a ConfigMap", []Part{kube}, config, "    federation {\n        a b\n    }\n", ""},
		{"dnsmasq with a ConfigMap", []Part{masq}, config, "federations are omitted", ""},
		{"dnsmasq", []Part{masq}, nil, "    forward cluster.local 127.0.0.1:10053\n", ""},
		{"notes", []Part{noted}, nil, "# - c-kube-dns (kube-dns): n1 \n# - c-kube-dns (kube-dns): n2\n# - not part of a Corefile, since they affect the process or its log: -v, -k\n", ""},
		{"no DNS server", []Part{part(servers.Sidecar, "")}, nil, "", "no program that answers queries in the input: want kube-dns, dnsmasq-nanny or dnsmasq"},
		{"a program twice", []Part{masq, part(servers.Nanny, masq.Text), kube, kube}, nil, "",
			"the input has both c-kube-dns (kube-dns) and c-kube-dns (kube-dns): remove one of them\nthe input has both c-dnsmasq (dnsmasq) and c-dnsmasq-nanny (dnsmasq-nanny): remove one of them"},
		{"an invalid ConfigMap", []Part{kube}, &ConfigMap{"ConfigMap x", "", "", map[string]string{"federations": "a", "upstreamNameservers": "x"}}, "",
			"ConfigMap x: federations: want NAME=DOMAIN,NAME=DOMAIN, got \"a\"\nConfigMap x: upstreamNameservers: want a JSON array"},
	} {
		result, err := Conversion{From: "Pod p", Order: directives, Parts: c.parts, Config: c.config}.Corefile()
		text := result.Corefile
		if !strings.Contains(text, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: got error %v and\n%s", c.name, err, text)
		}
	}
}
