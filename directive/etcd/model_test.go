package etcd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"
)

// A model is a simple implementation: a map of keys that each query iterates over. It
// shares no code with the index and the answers.
type model struct {
	values map[string]string // by key
	skydns bool
	parsed map[keyText]service // most of the model's cost otherwise
}

type keyText struct{ key, value string }

// A service is the value of a key as SkyDNS parses it.
type service struct {
	Host        string   `json:"host"`
	Port        int      `json:"port"`
	Priority    int      `json:"priority"`
	Weight      int      `json:"weight"`
	Text        string   `json:"text"`
	Mail        bool     `json:"mail"`
	TTL         int      `json:"ttl"`
	TargetStrip int      `json:"targetstrip"`
	Group       string   `json:"group"`
	labels      []string // of the key, top label first
	ip          netip.Addr
	bad         bool
}

func (m *model) read(key string) service {
	text := keyText{key, m.values[key]}
	s, ok := m.parsed[text]
	if !ok {
		s = m.parse(text)
		if m.parsed == nil {
			m.parsed = map[keyText]service{}
		}
		m.parsed[text] = s
	}
	return s
}

func (m *model) parse(text keyText) (s service) {
	s.labels = strings.Split(strings.TrimPrefix(text.key, "/skydns/"), "/")
	labels := s.labels
	if err := json.Unmarshal([]byte(text.value), &s); err != nil || s.Port > 65535 || strings.Contains(s.Host, ":80") {
		return service{labels: labels, bad: true}
	}
	s.ip, _ = netip.ParseAddr(s.Host)
	if s.Host != "" && !s.ip.IsValid() {
		s.Host = strings.ToLower(strings.TrimSuffix(s.Host, ".")) + "."
	}
	if s.Priority == 0 {
		s.Priority = 10
	}
	if s.Weight == 0 {
		s.Weight = 100
	}
	if s.TTL == 0 {
		s.TTL = 300
		if m.skydns {
			s.TTL = 3600
		}
	}
	return s
}

func (s *service) isName() bool { return s.Host != "" && !s.ip.IsValid() }

// target returns the target of SRV, MX and NS records.
func (s *service) target() string {
	if s.isName() {
		return s.Host
	}
	labels := slices.Clone(s.labels)
	slices.Reverse(labels)
	if s.TargetStrip < len(labels) {
		labels = labels[s.TargetStrip:]
	}
	return strings.Join(labels, ".") + "."
}

// below returns the services at a name and below it, in order, and reports whether there
// is any key.
func (m *model) below(name string) (all []service, exists bool) {
	want := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(want)
	for key := range m.values {
		s := m.read(key)
		if len(s.labels) < len(want) {
			continue
		}
		matches := true
		for i, label := range want {
			matches = matches && (label == s.labels[i] || m.skydns && (label == "*" || label == "any"))
		}
		if !matches {
			continue
		}
		exists = true
		if !s.bad {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b service) int { return slices.Compare(a.labels, b.labels) })
	return all, exists
}

// grouped returns the services of one group.
func grouped(all []service, texts bool) (left []service) {
	depth := math.MaxInt
	for _, s := range all {
		if s.Host != "" || texts && s.Text != "" {
			depth = min(depth, len(s.labels))
		}
	}
	groups := map[string]bool{}
	group := ""
	for _, s := range all {
		if len(s.labels) == depth && s.Group != "" && (s.Host != "" || texts && s.Text != "") {
			groups[s.Group], group = true, s.Group
		}
	}
	for _, s := range all {
		if len(groups) != 1 || s.Group == "" || s.Group == group {
			left = append(left, s)
		}
	}
	return left
}

// A section has records without TTLs, and the lowest TTL.
type section struct {
	records map[string]bool
	ttl     int
}

func (s *section) add(ttl int, format string, args ...any) (fresh bool) {
	if s.records == nil {
		s.records, s.ttl = map[string]bool{}, ttl
	}
	s.ttl = min(s.ttl, ttl)
	text := fmt.Sprintf(format, args...)
	fresh = !s.records[text]
	s.records[text] = true
	return fresh
}

// resolve adds the records of a name and type ("" is A and AAAA), and reports whether
// there are any.
func (m *model) resolve(to *section, name, qtype string, all []service, root string, chain []string) (found bool) {
	all = grouped(all, qtype == "TXT")
	for _, s := range all {
		switch {
		case s.ip.Is4() && (qtype == "A" || qtype == ""):
			to.add(s.TTL, "%s IN A %s", name, s.Host)
		case s.ip.Is6() && (qtype == "AAAA" || qtype == ""):
			to.add(s.TTL, "%s IN AAAA %s", name, s.Host)
		case s.Text != "" && qtype == "TXT":
			to.add(s.TTL, "%s IN TXT %q", name, s.Text)
		default:
			continue
		}
		found = true
	}
	for _, s := range all {
		if !s.isName() || qtype == "TXT" && (s.Text != "" || m.skydns) || s.Host == name || s.Host == root || slices.Contains(chain, s.Host) ||
			!m.skydns && mdns.IsSubDomain(name, s.Host) || len(chain) == 8 {
			continue
		}
		next, _ := m.below(s.Host)
		if s.Host == "test." && qtype != "TXT" {
			next, _ = m.apex()
		}
		if !mdns.IsSubDomain("test.", s.Host) {
			if qtype != "" { // no handler serves it: the client may resolve it
				to.add(s.TTL, "%s IN CNAME %s", name, s.Host)
				found = true
			}
			continue
		}
		link := fmt.Sprintf("%s IN CNAME %s", name, s.Host)
		before := section{ttl: to.ttl, records: map[string]bool{}}
		for r := range to.records {
			before.records[r] = true
		}
		empty := to.records == nil
		if fresh := to.add(s.TTL, "%s", link); !fresh || m.resolve(to, s.Host, qtype, next, root, append(slices.Clone(chain), s.Host)) {
			found = true
		} else if *to = before; empty {
			*to = section{}
		}
	}
	return found
}

// apex returns the services with the addresses of the zone's apex.
func (m *model) apex() ([]service, bool) {
	if all, exists := m.below("apex.dns.test."); exists {
		return all, true
	}
	return m.below("test.")
}

// alias returns the reply for a name whose keys, its own or those one label below, have names
// as hosts, or false. asked has the names whose aliases led to it.
func (m *model) alias(name, qtype string, asked []string, all []service) (text string, ok bool) {
	var cnames section
	targets := map[string]bool{}
	for _, s := range all {
		below := len(s.labels) - strings.Count(name, ".")
		if below > 1 || s.Host == "" {
			continue
		}
		if s.isName() && (qtype != "CNAME" || !mdns.IsSubDomain(name, s.Host)) {
			cnames.add(s.TTL, "%s IN CNAME %s", name, s.Host)
		}
		if targets[s.Host] = true; qtype != "CNAME" && below == 0 {
			break
		}
	}
	if len(cnames.records) == 0 {
		return "", false
	}
	if qtype == "CNAME" {
		return "NOERROR aa\n" + cnames.lines("answer"), true
	}
	target := slices.Collect(maps.Keys(targets))[0]
	if len(targets) > 1 || mdns.IsSubDomain(name, target) {
		return "", false
	}

	own := cnames.lines("answer")
	switch {
	case !mdns.IsSubDomain("test.", target): // no handler serves it: the client may resolve it
		return "NOERROR aa\n" + own, true
	case slices.Contains(append(asked, name), target):
		return "SERVFAIL aa\n" + own, true
	}
	code, rest, _ := strings.Cut(m.answer(target, qtype, append(asked, name)), "\n")
	return code + "\n" + own + rest, true
}

// reply returns a reply in the format of digest.
func (m *model) reply(name, qtype string) string { return m.answer(name, qtype, nil) }

func (m *model) answer(name, qtype string, asked []string) string {
	all, exists := m.below(name)
	apex := name == "test."
	var answer, extra section
	code := "NOERROR"
	if !exists && !apex {
		code = "NXDOMAIN"
	}
	switch qtype {
	case "A", "AAAA":
		if apex {
			all, _ = m.apex()
		}
		m.resolve(&answer, name, qtype, all, name, nil)
	case "TXT":
		m.resolve(&answer, name, qtype, all, name, nil)
	case "CNAME", "PTR":
		for _, s := range all {
			if s.isName() && len(s.labels) == strings.Count(name, ".") {
				answer.add(s.TTL, "%s IN %s %s", name, qtype, s.Host)
				break
			}
		}
	case "NS":
		if apex {
			all, _ = m.below("ns.dns.test.")
			m.ns(&answer, &extra, grouped(all, false))
		}
	case "SRV", "MX":
		m.services(&answer, &extra, name, qtype, grouped(all, false))
	}
	negative := 30
	if m.skydns {
		negative = 60
	}
	if len(answer.records) == 0 && !apex && !m.skydns {
		if text, ok := m.alias(name, qtype, asked, grouped(all, false)); ok {
			return text
		}
	}
	b := code
	if qtype != "PTR" || !m.skydns {
		b += " aa"
	}
	b += "\n" + answer.lines("answer")
	if len(answer.records) == 0 {
		b += fmt.Sprintf("authority test. %d IN SOA ns.dns.test. hostmaster.test.\n", negative)
	}
	return b + extra.lines("additional")
}

func (m *model) ns(answer, extra *section, all []service) {
	for _, s := range all {
		if s.ip.IsValid() {
			answer.add(s.TTL, "test. IN NS %s", s.target())
			extra.address(&s)
		}
	}
}

func (to *section) address(s *service) {
	kind := "A"
	if s.ip.Is6() {
		kind = "AAAA"
	}
	to.add(s.TTL, "%s IN %s %s", s.target(), kind, s.Host)
}

func (m *model) services(answer, extra *section, name, qtype string, all []service) {
	sums := map[int]int{}
	counted := map[string]bool{}
	for _, s := range all {
		record := fmt.Sprint(s.Priority, s.Weight, s.Port, s.target())
		if s.Host != "" && !counted[record] {
			counted[record] = true
			sums[s.Priority] += s.Weight
		}
	}
	known := map[string]bool{}
	for _, s := range all {
		if s.Host == "" || qtype == "MX" && !s.Mail {
			continue
		}
		if qtype == "MX" {
			answer.add(s.TTL, "%s IN MX %d %s", name, s.Priority, s.target())
		} else {
			weight := int(math.Floor(100.0 / float64(sums[s.Priority]) * float64(s.Weight)))
			if !m.skydns {
				weight = max(weight, 1)
			}
			answer.add(s.TTL, "%s IN SRV %d %d %d %s", name, s.Priority, weight, s.Port, s.target())
		}
		if s.ip.IsValid() {
			extra.address(&s)
		} else if !known[s.Host] && mdns.IsSubDomain("test.", s.Host) {
			known[s.Host] = true
			next, _ := m.below(s.Host)
			if s.Host == "test." {
				next, _ = m.apex()
			}
			m.resolve(extra, s.Host, "", next, s.Host, nil)
		}
	}
}

// lines formats a section as digest does.
func (s *section) lines(word string) string {
	var lines []string
	for r := range s.records {
		owner, rest, _ := strings.Cut(r, " ")
		lines = append(lines, fmt.Sprintf("%s %s %d %s\n", word, owner, s.ttl, rest))
	}
	slices.SortFunc(lines, cmp.Compare)
	return strings.Join(lines, "")
}
