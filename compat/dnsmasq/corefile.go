package dnsmasq

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/flags"
)

// An Environment describes the host and the pod, which a command line does not
// mention.
type Environment struct {
	ConfigMap  string        // directory of the ConfigMap kube-dns to follow; may be empty
	Period     time.Duration // its poll interval
	Resolver   string        // IP:PORT, resolves hostnames of its servers in the cluster
	Lameduck   time.Duration // answering time after SIGTERM; 0: none
	Interfaces []string      // the host's interfaces with addresses
}

// ResolvConf names the upstreams unless an option does.
const ResolvConf = "/etc/resolv.conf"

// Corefile returns the Corefile for the options. It reports all options that a
// Corefile cannot express.
func (o Options) Corefile(at Environment) (string, error) {
	w := &writer{Options: o, at: at}
	if g := o.find(singleLabel); g != nil {
		w.Block(fmt.Sprintf(".:%d", o.Port), func() { w.block(g) })
	}
	w.Block(fmt.Sprintf(".:%d", o.Port), func() { w.block(nil) })
	return w.Writer.Corefile()
}

func (o Options) find(zone string) *group {
	if i := slices.IndexFunc(o.servers, func(g *group) bool { return g.zone == zone }); i >= 0 {
		return o.servers[i]
	}
	return nil
}

// A writer writes a Corefile.
type writer struct {
	Options
	flags.Writer
	at Environment
}

// block writes the directives of one of two server blocks: the block of names
// without a dot, whose upstreams are plain, or, if plain is nil, the block of all
// other names. Only the latter reports errors.
func (w *writer) block(plain *group) {
	if plain != nil {
		w.Directive("view plain_names", "expr name() matches '^[^.]+[.]$'")
	}
	w.bind(plain == nil)
	w.Directive(fmt.Sprintf("bufsize %d", w.packet))
	w.When(w.at.Lameduck > 0, "lameduck "+w.at.Lameduck.String())
	w.When(w.Debug, "debug")
	w.Errors()
	w.When(w.logQueries, "log")
	w.When(!w.noIdent && plain == nil, "chaos", "statistics")

	w.When(!w.noRotation, "loadbalance")
	w.When(w.maxTTL > 0, fmt.Sprintf("rewrite continue ttl regex .* -%d", w.maxTTL))
	w.existing()
	w.cache()
	w.Directive("header", "response set ra") // dnsmasq sets RA in every answer

	w.templates()
	w.hostsFiles()
	w.staticRecords(plain == nil)
	w.screen(plain)
	w.When(w.loop, "loop")
	if w.at.ConfigMap != "" && plain == nil {
		w.configMap()
	}
	w.forwards(plain)
}

func (w *writer) bind(report bool) {
	excepted := func(name string) bool {
		return slices.ContainsFunc(w.except, func(pattern string) bool { return matches(name, pattern) })
	}
	patterns := slices.Clone(w.interfaces)
	switch {
	case len(patterns) > 0 && !slices.Contains(patterns, "lo"):
		patterns = append(patterns, "lo")
	case len(patterns)+len(w.listen) == 0 && len(w.except) > 0:
		patterns = []string{"*"}
	}

	words := slices.Clone(w.listen)
	for _, pattern := range patterns {
		for _, name := range w.matching(pattern) {
			if !excepted(name) && !slices.Contains(words, word(name)) {
				words = append(words, word(name))
			}
		}
	}
	if len(words) == 0 {
		if len(patterns) > 0 && report {
			w.Fail("--interface, --except-interface: no interface is left to listen on")
		}
		return
	}

	except := "except"
	for _, name := range w.at.Interfaces {
		if len(w.listen) > 0 && excepted(name) {
			except += " " + word(name)
		}
	}
	var options []string
	if except != "except" {
		options = []string{except}
	}
	w.Directive("bind "+strings.Join(words, " "), options...)
}

// matching returns the host's interfaces that match a name with * at the end, or
// the name itself.
func (w *writer) matching(name string) (all []string) {
	if !strings.HasSuffix(name, "*") {
		return []string{name}
	}
	for _, has := range w.at.Interfaces {
		if matches(has, name) {
			all = append(all, has)
		}
	}
	return all
}

func matches(name, pattern string) bool {
	stem, wild := strings.CutSuffix(pattern, "*")
	return name == pattern || wild && strings.HasPrefix(name, stem)
}

// existing makes names with static records exist even if the upstreams, which get the
// queries for other types, return NXDOMAIN.
func (w *writer) existing() {
	var done []string
	for _, r := range w.records {
		if r.forwardsRest() && !slices.Contains(done, r.name) {
			done = append(done, r.name)
			w.Directive("rewrite continue rcode exact " + r.name + ". NXDOMAIN NOERROR")
		}
	}
}

func (w *writer) cache() {
	if w.cacheSize == 0 {
		return
	}
	most := 1<<31 - 1
	if w.maxCache > 0 {
		most = max(w.maxCache, w.minTTL)
	}

	good, bad := w.cacheSize-w.cacheSize/2, w.cacheSize/2 // cachesize.bind returns the sum
	if w.noNegative {
		good, bad = w.cacheSize, 0
	}
	options := []string{
		fmt.Sprintf("success %d %d %d", good, most, w.minTTL),
		fmt.Sprintf("denial %d %d %d", bad, most, w.minTTL),
		"servfail 0",
	}
	if w.stale >= 0 {
		options = append(options, fmt.Sprintf("serve_stale %ds", w.stale))
	}
	w.Directive("cache", options...)
}

// word returns text as a word of a Corefile.
func word(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:[]@%*"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
}
