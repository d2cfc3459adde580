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
	ConfigMap  string        // the directory of the ConfigMap kube-dns that is followed; "" is none
	Period     time.Duration // how often it is looked at besides
	Resolver   string        // IP:PORT of who is asked for names of its servers in the cluster
	Lameduck   time.Duration // how long it goes on when it is told to stop; 0 is not at all
	Interfaces []string      // those that have addresses
}

// ResolvConf names the upstreams unless an option does.
const ResolvConf = "/etc/resolv.conf"

// Corefile is the options as the text of one. What cannot be said in one is an
// error, all such errors together.
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

// A writer writes one Corefile.
type writer struct {
	Options
	at   Environment
	text strings.Builder
	errs []error
}

func (w *writer) line(depth int, words ...string) {
	w.text.WriteString(strings.Repeat("    ", depth) + strings.Join(words, " ") + "\n")
}

// lines writes a directive with its options in braces, if there are any.
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

// block writes a server block: that of the names without a dot, if plain is who is
// asked for them, or that of all others.
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
	w.lines("errors", []string{"consolidate 30s . warning show_first"}) // a dead server is one line
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
	w.lines("header", []string{"response set ra"}) // dnsmasq says so in every answer
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

// machine gives the interfaces that a name with a * stands for.
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

// existing has names with records of some types exist, whatever others say: for the
// other types they are asked.
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
	good, bad := w.cacheSize-w.cacheSize/2, w.cacheSize/2 // the sum is what cachesize.bind tells
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

// word is text as a word of a Corefile.
func word(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:[]@%*") == "" {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
}
