package dnsmasq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
	if g := o.find(plainest); g != nil {
		w.block(g)
	}
	w.block(nil)
	return w.text.String(), errors.Join(w.errs...)
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
	at   Environment
	text strings.Builder
	errs []error
}

func (w *writer) line(depth int, words ...string) {
	w.text.WriteString(strings.Repeat("    ", depth) + strings.Join(words, " ") + "\n")
}

// lines writes a directive with its options, if any, in braces.
func (w *writer) lines(head string, options []string) {
	if len(options) == 0 {
		w.line(1, head)
		return
	}
	w.line(1, head, "{")
	for _, o := range options {
		w.line(2, o)
	}
	w.line(1, "}")
}

// block writes a server block: that of names without a dot if plain has their
// upstreams, else that of all other names.
func (w *writer) block(plain *group) {
	w.line(0, fmt.Sprintf(".:%d {", w.Port))
	if plain != nil {
		w.line(1, "view plain_names {")
		w.line(2, "expr name() matches '^[^.]+[.]$'")
		w.line(1, "}")
	}
	w.bind(plain == nil)
	w.line(1, "bufsize", strconv.Itoa(w.packet))
	if w.at.Lameduck > 0 {
		w.line(1, "lameduck", w.at.Lameduck.String())
	}
	if w.Debug {
		w.line(1, "debug")
	}
	w.lines("errors", []string{"consolidate 30s . warning show_first"}) // a failing upstream logs one line
	if w.logQueries {
		w.line(1, "log")
	}
	if !w.noIdent && plain == nil {
		w.lines("chaos", []string{"statistics"})
	}
	if !w.noRotation {
		w.line(1, "loadbalance")
	}
	if w.maxTTL > 0 {
		w.line(1, fmt.Sprintf("rewrite continue ttl regex .* -%d", w.maxTTL))
	}
	w.existing()
	w.cache()
	w.lines("header", []string{"response set ra"}) // dnsmasq sets RA in every answer
	w.templates()
	w.hostsFiles()
	w.staticRecords(plain == nil)
	w.screen(plain)
	if w.loop {
		w.line(1, "loop")
	}
	if w.at.ConfigMap != "" && plain == nil {
		w.configMap()
	}
	w.forwards(plain)
	w.line(0, "}")
}

func (w *writer) bind(complain bool) {
	listed := slices.Clone(w.interfaces)
	if len(listed) > 0 && !slices.Contains(listed, "lo") {
		listed = append(listed, "lo")
	}
	if len(listed)+len(w.listen) == 0 && len(w.except) > 0 {
		listed = []string{"*"}
	}
	var names []string
	for _, name := range listed {
		for _, one := range w.machine(name) {
			if !slices.ContainsFunc(w.except, func(e string) bool { return fits(one, e) }) && !slices.Contains(names, one) {
				names = append(names, one)
			}
		}
	}
	words := append(slices.Clone(w.listen), names...)
	if len(words) == 0 {
		if len(listed) > 0 && complain {
			w.errs = append(w.errs, errors.New("--interface, --except-interface: no interface is left to listen on"))
		}
		return
	}
	var except []string
	if len(w.listen) > 0 {
		for _, name := range w.at.Interfaces {
			if slices.ContainsFunc(w.except, func(e string) bool { return fits(name, e) }) {
				except = append(except, word(name))
			}
		}
	}
	for i := range words {
		words[i] = word(words[i])
	}
	if len(except) > 0 {
		w.lines("bind "+strings.Join(words, " "), []string{"except " + strings.Join(except, " ")})
		return
	}
	w.line(1, "bind", strings.Join(words, " "))
}

// machine returns the host's interfaces that match a name with *.
func (w *writer) machine(name string) (all []string) {
	if !strings.HasSuffix(name, "*") {
		return []string{name}
	}
	for _, has := range w.at.Interfaces {
		if fits(has, name) {
			all = append(all, has)
		}
	}
	return all
}

func fits(name, pattern string) bool {
	stem, wild := strings.CutSuffix(pattern, "*")
	return name == pattern || wild && strings.HasPrefix(name, stem)
}

// existing makes names with static records exist even if the upstreams, which get the
// queries for other types, return NXDOMAIN.
func (w *writer) existing() {
	var done []string
	for _, r := range w.records {
		if r.aside() && !slices.Contains(done, r.name) {
			done = append(done, r.name)
			w.line(1, "rewrite continue rcode exact", r.name+".", "NXDOMAIN NOERROR")
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
	w.lines("cache", options)
}

// word returns text as a word of a Corefile.
func word(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:[]@%*") == "" {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
}
