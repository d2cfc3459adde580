package dnsmasq

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// number sets an integer.
func number(least, most int, to func(*Options) *int) func(*reader, setting) error {
	return func(r *reader, s setting) (err error) {
		*to(&r.Options), err = parseNumber(s.value, least, most)
		return err
	}
}

// checked validates a number without an effect.
func checked(least, most int) func(*reader, setting) error {
	return number(least, most, func(*Options) *int { return new(int) })
}

func parseNumber(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("want a number of %d..%d, got %q", least, most, show(text))
	}
	return n, nil
}

// list validates up to count numbers without an effect.
func list(count, least, most int) func(*reader, setting) error {
	return func(_ *reader, s setting) error {
		if s.value == "" {
			return nil
		}
		fields := strings.Split(s.value, ",")
		if len(fields) > count {
			return fmt.Errorf("want at most %d numbers, got %q", count, show(s.value))
		}
		for _, f := range fields {
			if _, err := parseNumber(f, least, most); err != nil {
				return err
			}
		}
		return nil
	}
}

// paths appends files and directories separated by commas.
func paths(to func(*Options) *[]string) func(*reader, setting) error {
	return func(r *reader, s setting) error {
		for path := range strings.SplitSeq(s.value, ",") {
			path = show(path)
			if err := writable(path); err != nil {
				return err
			}
			all := to(&r.Options)
			if !slices.Contains(*all, path) {
				*all = append(*all, path)
			}
		}
		return nil
	}
}

// writable returns an error unless a Corefile can contain the word in quotes.
func writable(word string) error {
	switch {
	case word == "":
		return errors.New("want a path, got nothing")
	case strings.ContainsAny(word, `"\{}`):
		return fmt.Errorf(`want a path without ", \, { and }, got %q`, word)
	}
	return nil
}

func (r *reader) listenOn(s setting) error {
	for text := range strings.SplitSeq(s.value, ",") {
		addr, err := netip.ParseAddr(show(text))
		if err != nil || addr.Zone() != "" {
			return fmt.Errorf("want an IP address, got %q", show(text))
		}
		if text = addr.Unmap().String(); !slices.Contains(r.listen, text) {
			r.listen = append(r.listen, text)
		}
	}
	return nil
}

// interfaces appends names of interfaces separated by commas.
func interfaces(to func(*Options) *[]string) func(*reader, setting) error {
	return func(r *reader, s setting) error {
		for name := range strings.SplitSeq(s.value, ",") {
			name = show(name)
			stem := strings.TrimSuffix(name, "*")
			if name == "" || len(stem) > 15 || strings.ContainsFunc(stem, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\/{}#*`, c) }) {
				return fmt.Errorf("want the name of an interface, got %q", name)
			}
			all := to(&r.Options)
			if !slices.Contains(*all, name) {
				*all = append(*all, name)
			}
		}
		return nil
	}
}

// user validates a user or group name, which has no effect: the pod sets them.
func user(_ *reader, s setting) error {
	if s.value == "" {
		return errors.New("want a name")
	}
	return nil
}

func (r *reader) noDaemon(setting) error {
	r.debugging = true
	return nil
}

func (r *reader) pidFile(s setting) error {
	r.PIDFile = show(s.value)
	return nil
}

func (r *reader) confFile(s setting) error {
	if s.file == "" {
		r.usual = false
	}
	switch path := show(s.value); path {
	case "", "/dev/null":
	case "-":
		return errors.New("configuration is not read from standard input")
	default:
		r.configs = append(r.configs, path)
	}
	return nil
}

func (r *reader) suffix(s setting) error {
	if s.value == "#" {
		return errors.New("not served: the search path of a resolv.conf is not looked at: give the domain itself")
	}
	if strings.Contains(s.value, ",") {
		return errors.New("not served: a domain for some addresses alone belongs to DHCP")
	}
	name, err := parseName(s.value)
	r.domain = name
	return err
}

func (r *reader) minCache(s setting) error {
	n, err := parseNumber(s.value, 0, 1<<31-1)
	if r.minTTL = min(n, 3600); n > 3600 {
		r.lose(s, "it is 3600, as more is not allowed")
	}
	return err
}

// lose adds a note about an ignored value.
func (r *reader) lose(s setting, sentence string) {
	r.Notes = append(r.Notes, strings.TrimSuffix(s.String(), ": ")+": "+sentence)
}

func (r *reader) useStale(s setting) error {
	const day, forever = 86400, 365 * 86400
	r.stale = day
	if !s.valued || s.value == "" {
		return nil
	}
	n, err := parseNumber(s.value, 0, 1<<31-1)
	if r.stale = min(n, forever); n == 0 {
		r.stale = forever
	}
	return err
}

func (r *reader) packetSize(s setting) error {
	n, err := parseNumber(s.value, 0, 65535)
	r.packet = max(512, min(n, 4096))
	if n > 4096 {
		r.lose(s, "it is 4096, as more is not sent by UDP")
	}
	return err
}

func (r *reader) rebindDomain(s setting) error {
	names := []string{s.value}
	if rest, ok := strings.CutPrefix(s.value, "/"); ok {
		names = strings.Split(strings.TrimSuffix(rest, "/"), "/")
	}
	for _, text := range names {
		if text == "" {
			return errors.New("want DOMAIN or /DOMAIN/DOMAIN/; names without dots cannot be told apart")
		}
		name, err := parseName(text)
		if err != nil {
			return err
		}
		if !slices.Contains(r.rebindOK, name) {
			r.rebindOK = append(r.rebindOK, name)
		}
	}
	return nil
}

// drop removes a record type from answers.
func drop(kind string) func(*reader, setting) error {
	return func(r *reader, _ setting) error {
		if !slices.Contains(r.dropped, kind) {
			r.dropped = append(r.dropped, kind)
		}
		return nil
	}
}

func (r *reader) filter(s setting) error {
	for kind := range strings.SplitSeq(s.value, ",") {
		switch kind = strings.ToUpper(kind); kind {
		case "1", "28":
			kind = map[string]string{"1": "A", "28": "AAAA"}[kind]
		case "A", "AAAA":
		default:
			return fmt.Errorf("not served: only A and AAAA are taken out of answers, got %q", show(kind))
		}
		_ = drop(kind)(r, s)
	}
	return nil
}

func (r *reader) logThem(s setting) error {
	if s.valued && s.value != "extra" && s.value != "proto" && s.value != "auth" {
		return fmt.Errorf("want nothing, or extra, got %q", show(s.value))
	}
	r.logQueries = true
	return nil
}

func (r *reader) facility(s setting) error {
	if s.value != "-" {
		r.lose(s, "the log goes to standard output")
	}
	return nil
}

// parseName returns a domain name in lower case without a trailing dot.
func parseName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(show(text), "."))
	bad := len(name) > 253
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != ""
	}
	if bad {
		return "", fmt.Errorf("want a domain name, got %q", show(text))
	}
	return name, nil
}
