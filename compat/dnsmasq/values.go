package dnsmasq

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// number returns a setter of an integer.
func number(to *int, least, most int) func(setting) error {
	return func(s setting) (err error) {
		*to, err = parseNumber(s.value, least, most)
		return err
	}
}

// checked validates a number without an effect.
func checked(least, most int) func(setting) error { return number(new(int), least, most) }

func parseNumber(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("want a number of %d..%d, got %q", least, most, unescape(text))
	}
	return n, nil
}

// numbers validates up to count numbers without an effect.
func numbers(count, least, most int) func(setting) error {
	return func(s setting) error {
		if s.value == "" {
			return nil
		}
		words := strings.Split(s.value, ",")
		if len(words) > count {
			return fmt.Errorf("want at most %d numbers, got %q", count, unescape(s.value))
		}
		for _, word := range words {
			if _, err := parseNumber(word, least, most); err != nil {
				return err
			}
		}
		return nil
	}
}

// list returns a setter that appends the words of a value, separated by commas, in
// the form that parse returns. It omits duplicates.
func list(to *[]string, parse func(string) (string, error)) func(setting) error {
	return func(s setting) error { return appendDistinct(to, strings.Split(s.value, ","), parse) }
}

func appendDistinct(to *[]string, words []string, parse func(string) (string, error)) error {
	for _, word := range words {
		word, err := parse(unescape(word))
		if err != nil {
			return err
		}
		if !slices.Contains(*to, word) {
			*to = append(*to, word)
		}
	}
	return nil
}

// path returns text if it is a path that a Corefile can contain in quotes.
func path(text string) (string, error) {
	switch {
	case text == "":
		return "", errors.New("want a path, got nothing")
	case strings.ContainsAny(text, `"\{}`):
		return "", fmt.Errorf(`want a path without ", \, { and }, got %q`, text)
	}
	return text, nil
}

func address(text string) (string, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return "", fmt.Errorf("want an IP address, got %q", text)
	}
	return addr.Unmap().String(), nil
}

// interfaceName returns text if it is the name of an interface, perhaps with * at
// the end.
func interfaceName(text string) (string, error) {
	stem := strings.TrimSuffix(text, "*")
	special := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\/{}#*`, c) }
	if text == "" || len(stem) > 15 || strings.ContainsFunc(stem, special) {
		return "", fmt.Errorf("want the name of an interface, got %q", text)
	}
	return text, nil
}

// droppedType returns the name of a record type that can be removed from answers.
func droppedType(text string) (string, error) {
	switch text = strings.ToUpper(text); text {
	case "A", "1":
		return "A", nil
	case "AAAA", "28":
		return "AAAA", nil
	}
	return "", fmt.Errorf("not served: only A and AAAA can be removed from answers, got %q", text)
}

// nonEmpty validates a user or group name, which has no effect: the pod sets them.
func nonEmpty(s setting) error {
	if s.value == "" {
		return errors.New("want a name")
	}
	return nil
}

// name returns a setter of a domain name.
func name(to *string) func(setting) error {
	return func(s setting) (err error) {
		*to, err = parseName(s.value)
		return err
	}
}

func (r *reader) pidFile(s setting) error {
	r.PIDFile = unescape(s.value)
	return nil
}

func (r *reader) confFile(s setting) error {
	if s.file == "" {
		r.readDefault = false
	}
	switch path := unescape(s.value); path {
	case "", "/dev/null":
	case "-":
		return errors.New("configuration is not read from standard input")
	default:
		r.configs = append(r.configs, path)
	}
	return nil
}

func (r *reader) suffix(s setting) error {
	switch {
	case s.value == "#":
		return errors.New("not served: the search path of resolv.conf is not used: set the domain itself")
	case strings.Contains(s.value, ","):
		return errors.New("not served: a domain for some addresses only is a feature of DHCP")
	}
	return name(&r.domain)(s)
}

func (r *reader) minCache(s setting) error {
	n, err := parseNumber(s.value, 0, 1<<31-1)
	if r.minTTL = min(n, 3600); n > 3600 {
		r.note(s, "it is 3600, the maximum")
	}
	return err
}

// note adds a note about a value that is ignored or changed.
func (r *reader) note(s setting, sentence string) { r.Notes = append(r.Notes, s.String()+sentence) }

func (r *reader) useStale(s setting) error {
	const day, unlimited = 86400, 365 * 86400
	r.stale = day
	if s.value == "" {
		return nil
	}
	n, err := parseNumber(s.value, 0, 1<<31-1)
	if r.stale = min(n, unlimited); n == 0 {
		r.stale = unlimited
	}
	return err
}

func (r *reader) packetSize(s setting) error {
	n, err := parseNumber(s.value, 0, 65535)
	r.packet = max(512, min(n, 4096))
	if n > 4096 {
		r.note(s, "it is 4096, the maximum")
	}
	return err
}

func (r *reader) rebindDomain(s setting) error {
	names := []string{s.value}
	if rest, ok := strings.CutPrefix(s.value, "/"); ok {
		names = strings.Split(strings.TrimSuffix(rest, "/"), "/")
	}
	if slices.Contains(names, "") {
		return errors.New("want DOMAIN or /DOMAIN/DOMAIN/; names without dots cannot be excepted")
	}
	return appendDistinct(&r.rebindOK, names, parseName)
}

func (r *reader) logMode(s setting) error {
	if s.hasValue && !slices.Contains([]string{"extra", "proto", "auth"}, s.value) {
		return fmt.Errorf("want nothing, or extra, got %q", unescape(s.value))
	}
	r.logQueries = true
	return nil
}

func (r *reader) facility(s setting) error {
	if s.value != "-" { // which stream it is depends on the command that serves the Corefile
		r.note(s, "the log goes to the output of the process, neither to a file nor to syslog")
	}
	return nil
}

// parseName returns a domain name in lower case without a trailing dot.
func parseName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(unescape(text), "."))
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	bad := len(name) > 253
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63 || strings.Trim(label, characters) != ""
	}
	if bad {
		return "", fmt.Errorf("want a domain name, got %q", unescape(text))
	}
	return name, nil
}
