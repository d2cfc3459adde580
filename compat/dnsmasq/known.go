package dnsmasq

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// templates refuses other names of class CH in bind, and writes the records of names
// whose other types are forwarded.
func (w *writer) templates() {
	type key struct{ name, kind string }
	w.Directive("template CH ANY bind", "rcode NOTIMP") // chaos precedes it
	var done []key
	for _, r := range w.records {
		k := key{r.name, r.kind}
		if !r.forwardsRest() || slices.Contains(done, k) {
			continue
		}
		done = append(done, k)
		options := []string{"match ^" + strings.ReplaceAll(r.name, ".", "[.]") + "[.]$"}
		for _, other := range w.records {
			if other.name == r.name && other.kind == r.kind {
				text := fmt.Sprintf("%s. %d IN %s %s", r.name, w.localTTL, r.kind, other.data)
				options = append(options, "answer "+word(text))
			}
		}
		w.Directive(fmt.Sprintf("template IN %s %s", r.kind, r.name), append(options, "fallthrough")...)
	}
}

// files returns the hosts files.
func (w *writer) files() (files []string) {
	if !w.noHosts {
		files = []string{"/etc/hosts"}
	}
	for _, h := range w.hosts {
		if !slices.Contains(files, h) {
			files = append(files, h)
		}
	}
	return files
}

func (w *writer) hostsFiles() {
	files := w.files()
	if len(files) == 0 {
		return
	}
	var options []string
	for _, file := range files[1:] {
		options = append(options, "file "+word(file))
	}
	expand := w.expand && w.domain != ""
	for _, h := range w.hostRecords {
		if h.ttl < 0 {
			names := strings.Join(h.names, " ")
			if expand { // the files' names alone: not those with a dot at the end
				names = strings.Join(h.names, ". ") + "."
			}
			for _, addr := range h.addrs {
				options = append(options, addr.String()+" "+names)
			}
		}
	}
	if expand {
		options = append(options, "domain "+w.domain)
	}
	if w.localise {
		options = append(options, "localise")
	}
	w.Directive("hosts "+word(files[0]), append(options, fmt.Sprintf("ttl %d", w.localTTL), "fallthrough")...)
}

// staticRecords writes addresses, aliases and PTR records. It adds errors if report is
// set.
func (w *writer) staticRecords(report bool) {
	var lines []string
	add := func(name string, ttl int, kind, data string) {
		if ttl < 0 {
			ttl = w.localTTL
		}
		if name == "import" { // without the dot a Corefile would read a file
			name = "import."
		}
		if line := fmt.Sprintf("%s %d %s %s", name, ttl, kind, data); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}

	named := map[netip.Addr]bool{}
	files := len(w.files()) > 0
	for _, h := range w.hostRecords {
		if h.ttl < 0 && files {
			continue // hostsFiles writes them
		}
		for _, addr := range h.addrs {
			for _, name := range h.names {
				add(name, h.ttl, kindOf(addr), addr.String())
			}
			if !named[addr] {
				named[addr] = true
				add(reverseZones(netip.PrefixFrom(addr, addr.BitLen()))[0], h.ttl, "PTR", h.names[0]+".")
			}
		}
	}

	for _, r := range w.records {
		if !r.forwardsRest() {
			add(r.name, r.ttl, r.kind, r.data)
		}
	}

	for _, a := range w.overrides {
		for _, g := range w.servers {
			if g.zone != a.zone && within(g.zone, a.zone) && report {
				w.Fail("%snot served: an address for %s, and other upstreams for %s below it", a.place, a.zone, g.zone)
			}
		}

		below := "*"
		if a.zone != root {
			add(a.zone, -1, kindOf(a.addr), a.addr.String())
			below = "*." + a.zone
		}
		add(below, -1, kindOf(a.addr), a.addr.String())
	}
	if len(lines) > 0 {
		w.Directive("records", lines...)
	}
}

func kindOf(addr netip.Addr) string {
	if addr.Is4() {
		return "A"
	}
	return "AAAA"
}

// within reports whether a zone is other or below it.
func within(zone, other string) bool {
	return other == root && zone != root || zone == other || strings.HasSuffix(zone, "."+other)
}
