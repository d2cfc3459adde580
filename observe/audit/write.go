package audit

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// SuggestFrom is the number of names below one parent from which on a line for all of them is suggested.
const SuggestFrom = 10

// Write writes the directive policy of the servers with groups that allow what the audited groups would
// have denied. Each precedes the group of which it is a part, which no longer audits. With suffixes a line
// for all names below a parent takes the place of SuggestFrom names.
func (s *Sum) Write(w io.Writer, suffixes bool) error {
	blocks, err := corefile.Parse("policy", []byte(s.Policy))
	if err != nil || len(blocks) != 1 || len(blocks[0].Directives) != 1 {
		return fmt.Errorf("reading the directive policy of the server block %s: %w", s.Zones, err)
	}

	t := writer{suffixes: suffixes}
	t.header(s)
	d := blocks[0].Directives[0]
	t.line(0, "policy {")
	for _, o := range d.Body {
		switch {
		case o.Text == "audit":
		case o.Text == "group" && len(o.Args) == 1:
			t.groups(o, s.group(o.Args[0].Text))
		default:
			t.directive(1, o)
		}
	}
	t.line(0, "}")

	if t.err != nil {
		return t.err
	}
	_, err = io.WriteString(w, t.text.String())
	return err
}

type writer struct {
	suffixes bool
	text     strings.Builder
	err      error
}

func (t *writer) line(depth int, format string, args ...any) {
	fmt.Fprintf(&t.text, strings.Repeat("    ", depth)+format+"\n", args...)
}

// header says what the record has, and what it cannot have.
func (t *writer) header(s *Sum) {
	took := duration(s.Shortest)
	if longest := duration(s.Longest); longest != took {
		took += " to " + longest
	}
	leftOut := uint64(0)
	for _, g := range s.Groups {
		leftOut += g.LeftOut
	}

	servers := "1 server"
	if s.Servers > 1 {
		servers = fmt.Sprintf("%d servers", s.Servers)
	}
	t.line(0, "# The directive policy of the server block %s with what its audit saw on %s in %s.",
		t.words([]corefile.Token{{Text: s.Zones}}), servers, took)
	t.line(0, "# Not in it: names that nobody queried in that time, and what servers saw before they were restarted.")
	if leftOut > 0 {
		t.line(0, "# Not in it: the names of %d queries, for which the record had no room.", leftOut)
	}
	if s.Differ {
		t.line(0, "# The servers have different groups. These are the ones of the first server.")
	}
	t.line(0, "# Read it before you use it: a name is here because it was queried, not because it is right.")
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// directive writes a line, with those in its braces.
func (t *writer) directive(depth int, d corefile.Directive) {
	words := t.words(append([]corefile.Token{d.Token}, d.Args...))
	if !d.Block {
		t.line(depth, "%s", words)
		return
	}
	t.line(depth, "%s {", words)
	for _, o := range d.Body {
		t.directive(depth+1, o)
	}
	t.line(depth, "}")
}

// words returns words as they are written in a Corefile.
func (t *writer) words(tokens []corefile.Token) string {
	var words []string
	for _, token := range tokens {
		word, err := corefile.Word(token.Text)
		t.err = cmp.Or(t.err, err)
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// groups writes a group for each workload of a group, and the group itself.
func (t *writer) groups(g corefile.Directive, seen *Group) {
	slices.SortFunc(seen.Workloads, func(a, b Workload) int { return a.id().compare(b.id()) })
	selectors, rest := split(g.Body)
	name := g.Args[0].Text
	var whole *Workload // all of the group
	for i := range seen.Workloads {
		w := &seen.Workloads[i]
		if selects := w.selectors(selectors); equal(selects, selectors) {
			whole = w
		} else {
			t.group(name+"/"+w.label(), selects, rest, w)
		}
	}
	t.group(name, selectors, rest, whole)
}

// split divides the lines of a group into those that select clients and the others, without audit.
func split(lines []corefile.Directive) (selectors, rest []corefile.Directive) {
	for _, o := range lines {
		switch o.Text {
		case "namespaces", "namespace_labels", "pods", "unknown":
			selectors = append(selectors, o)
		case "audit":
		default:
			rest = append(rest, o)
		}
	}
	return selectors, rest
}

func option(words ...string) (o corefile.Directive) {
	o.Text = words[0]
	for _, word := range words[1:] {
		o.Args = append(o.Args, corefile.Token{Text: word})
	}
	return o
}

// equal reports whether lines have the same words.
func equal(a, b []corefile.Directive) bool {
	return slices.EqualFunc(a, b, func(a, b corefile.Directive) bool {
		return a.Text == b.Text && slices.Equal(a.Words(), b.Words())
	})
}

// selectors returns lines that select the workload among the clients that others select.
func (w *Workload) selectors(of []corefile.Directive) []corefile.Directive {
	if w.Namespace == "" {
		return []corefile.Directive{option("unknown")}
	}
	selects := []corefile.Directive{option("namespaces", w.Namespace)}
	pods := w.expression()
	for _, o := range of {
		switch {
		case o.Text == "namespace_labels":
			selects = append(selects, o)
		case o.Text == "pods" && strings.HasSuffix(","+strings.Join(o.Words(), " "), ","+pods):
			pods = strings.Join(o.Words(), " ")
		case o.Text == "pods":
			pods = strings.Join(o.Words(), " ") + "," + pods
		}
	}
	return append(selects, option(append([]string{"pods"}, strings.Fields(pods)...)...))
}

// expression returns the label selector of the workload.
func (w *Workload) expression() string {
	if w.Key != "" {
		return w.Key + "=" + w.Value
	}
	return "!" + strings.Join(workloadLabels[:], ",!")
}

// label is part of the name of a group.
func (w *Workload) label() string {
	switch {
	case w.Namespace == "":
		return "unknown"
	case w.Key == "":
		return w.Namespace
	}
	return w.Namespace + "/" + w.Key + "=" + w.Value
}

// group writes a group, and allows what a workload has queried, which may be nil.
func (t *writer) group(name string, selectors, rest []corefile.Directive, w *Workload) {
	if w == nil {
		w = new(Workload)
	}
	t.line(1, "group %s {", t.words([]corefile.Token{{Text: name}}))
	for _, o := range selectors {
		t.directive(2, o)
	}

	names := Counts{}
	for text, count := range w.Names {
		if written, err := spelled(text); err == nil { // else it is no server of ours that has sent it
			names[written] += count
		}
	}
	hints := t.suggest(names, rest)
	for _, o := range rest {
		switch o.Text {
		case "deny":
			o.Args = slices.DeleteFunc(slices.Clone(o.Args), func(word corefile.Token) bool { return names.hasName(word.Text) })
			if len(o.Args) == 0 {
				continue
			}
		case "services":
			continue
		}
		t.directive(2, o)
	}
	t.services(rest, w.Services)

	for _, hint := range hints {
		t.line(2, "# %s", hint)
	}
	for _, word := range slices.Sorted(maps.Keys(names)) {
		t.line(2, "allow %s # %d", word, names[word])
	}
	if w.Transfers > 0 {
		t.line(2, "# Not allowed: %d zone transfers, which a line services refuses.", w.Transfers)
	}
	t.line(1, "}")
}

// services writes the line services with more namespaces.
func (t *writer) services(rest []corefile.Directive, more Counts) {
	var words []string
	for _, o := range rest {
		if o.Text == "services" {
			words = append(words, o.Words()...)
		}
	}
	if len(words) == 0 {
		return
	}
	for _, namespace := range slices.Sorted(maps.Keys(more)) {
		if !slices.Contains(words, namespace) {
			words = append(words, namespace)
		}
	}
	t.directive(2, option(append([]string{"services"}, words...)...))
	if more["*"] > 0 {
		t.line(2, "# The * is for %d queries for names with a wildcard in place of a namespace.", more["*"])
	}
}

// hasName reports whether a word of another spelling is among the words.
func (c Counts) hasName(text string) bool {
	written, err := spelled(text)
	return err == nil && c[written] > 0
}

// spelled returns a word of a line allow or deny in the spelling of this package.
func spelled(text string) (string, error) {
	owner, isBelow, err := ParseWord(text)
	if err != nil {
		return "", err
	}
	return Word(owner, isBelow), nil
}

// ParseWord parses a word of a line allow or deny: a name, *. and a name for those below it, or * for all.
func ParseWord(text string) (owner wire.Name, isBelow bool, err error) {
	rest, isBelow := strings.CutPrefix(text, below)
	if text == "*" {
		rest, isBelow = ".", true
	}
	owner, err = wire.ParseName(rest)
	if err == nil && strings.Contains(rest, "*") {
		err = fmt.Errorf("%q has a * in another place than in front", text)
	}
	return owner, isBelow, err
}

// suggest finds parents with many names. It returns hints, or replaces the names if the writer is to do so.
func (t *writer) suggest(names Counts, rest []corefile.Directive) (hints []string) {
	byParent := map[wire.Name][]string{}
	for text := range names {
		if owner, isBelow, err := ParseWord(text); err == nil && !isBelow && owner != wire.Root {
			above := owner[1+owner[0]:]
			byParent[above] = append(byParent[above], text)
		}
	}

	for _, above := range slices.Sorted(maps.Keys(byParent)) {
		found := byParent[above]
		if len(found) < SuggestFrom || isPublicSuffix(above) || deniesWithin(rest, above) {
			continue
		}
		line := below + word(above)
		if !t.suffixes {
			hints = append(hints, fmt.Sprintf("%d names have one parent: allow %s would be enough (--suffixes).", len(found), line))
			continue
		}
		for _, text := range found {
			names[line] += names[text]
			delete(names, text)
		}
	}
	return hints
}

// deniesWithin reports whether a line denies names in a zone, and not only all those below it.
func deniesWithin(rest []corefile.Directive, above wire.Name) bool {
	for _, o := range rest {
		if o.Text != "deny" {
			continue
		}
		for _, text := range o.Words() {
			owner, isBelow, err := ParseWord(text)
			if err != nil || owner.Within(above) && !(isBelow && owner == above) {
				return true
			}
		}
	}
	return false
}
