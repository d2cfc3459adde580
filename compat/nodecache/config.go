package nodecache

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
)

// A config is the part of kube-dns's ConfigMap that node-cache uses.
type config struct {
	stubs     map[string][]string // servers by domain
	upstreams []string
}

// parseConfig parses the data of the ConfigMap as node-cache does. Servers are IP
// addresses, with an optional port and scheme: a host name would be resolved through this
// server. On any mistake it returns all of them.
func parseConfig(data map[string]string) (config, error) {
	var c config
	var errs flags.Errors
	check := func(key string, servers []string) {
		for _, s := range servers {
			_, address, found := strings.Cut(s, "://")
			if !found {
				address = s
			} else if !strings.HasPrefix(s, "dns://") && !strings.HasPrefix(s, "tls://") {
				address = ""
			}
			_, ok := kubednsconfig.ParseAddress(address)
			errs.If(!ok, "%s: want IP or IP:PORT, optionally after dns:// or tls://, got %s",
				key, kubednsconfig.Quote(s))
		}
	}

	if text, ok := data["stubDomains"]; ok {
		err := json.Unmarshal([]byte(text), &c.stubs)
		errs.If(err != nil, "stubDomains: want a JSON object of domains and their servers "+
			`such as {"acme.local": ["1.2.3.4"]}, got %s`, kubednsconfig.Quote(text))
	}
	for _, domain := range slices.Sorted(maps.Keys(c.stubs)) {
		errs.If(!kubednsconfig.IsSubdomain(domain),
			"stubDomains: want a domain name in lower case without a trailing dot, got %s", kubednsconfig.Quote(domain))
		if len(c.stubs[domain]) == 0 {
			delete(c.stubs, domain)
		}
		check("stubDomains: "+domain, c.stubs[domain])
	}

	if text, ok := data["upstreamNameservers"]; ok {
		err := json.Unmarshal([]byte(text), &c.upstreams)
		errs.If(err != nil, `upstreamNameservers: want a JSON array of servers such as ["8.8.8.8"], got %s`,
			kubednsconfig.Quote(text))
		check("upstreamNameservers", c.upstreams)
	}
	if err := errs.Join(); err != nil {
		return config{}, err
	}
	return c, nil
}

// blocks returns a server block for each stub domain.
func (c config) blocks(local []netip.Addr) string {
	var b strings.Builder
	for _, domain := range slices.Sorted(maps.Keys(c.stubs)) {
		fmt.Fprintf(&b, "\n%s:53 {\n    errors\n    cache 30\n    bind %s\n    forward . %s\n}\n",
			domain, join(local), strings.Join(c.stubs[domain], " "))
	}
	return b.String()
}
