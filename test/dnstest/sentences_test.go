package dnstest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

const root = "../../"

// separatorOfEvidence writes a line for each item: a row of differences may have a semicolon, too.
var separatorOfEvidence = strings.NewReplacer("; script ", "\nscript ", "; test ", "\ntest ", "; difference ", "\ndifference ")

// Each sentence about CoreDNS is shown by a script or a test that exists, or is a difference that
// users can read about.
func TestSentences(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	text, err := os.ReadFile(root + "testdata/coredns/sentences.txt")
	if err != nil {
		t.Fatal(err)
	}
	differences, err := os.ReadFile(root + "docs/reference/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	e := evidence{differences: string(differences), tests: map[string]string{}}

	plugin, count := "", 0
	seen := map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("sentences.txt:%d", i+1)
		if name, ok := strings.CutPrefix(line, "== "); ok {
			plugin = name
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		sentence, shown, ok := strings.Cut(line, " | ")
		switch key := plugin + ": " + sentence; {
		case !ok || strings.TrimSpace(sentence) == "" || plugin == "":
			t.Errorf("%s: want a sentence of a plugin, a bar and what shows it, got %q", at, line)
		case seen[key]:
			t.Errorf("%s: the sentence is there twice", at)
		default:
			seen[key] = true
		}
		count++
		for item := range strings.SplitSeq(separatorOfEvidence.Replace(shown), "\n") {
			if wrong := e.missing(item); wrong != "" {
				t.Errorf("%s: %s", at, wrong)
			} else if wrong := e.unstated(item, plugin, sentence); wrong != "" {
				t.Errorf("%s: %q: %s", at, sentence, wrong)
			}
		}
	}
	if count == 0 {
		t.Error("no sentences")
	}
	t.Logf("%d sentences", count)
}

// An evidence is what the sentences may name.
type evidence struct {
	differences string
	tests       map[string]string // the text of the tests of a directory
}

// missing returns why an item shows nothing, "" if it does.
func (e evidence) missing(item string) string {
	kind, name, _ := strings.Cut(item, " ")
	switch kind {
	case "script":
		if _, err := os.Stat(root + "testdata/script/" + name + ".txt"); err != nil {
			return "no script " + name
		}
		return ""

	case "difference":
		if !strings.Contains(e.differences, "\n| "+name+" |") {
			return fmt.Sprintf("no row of differences.md begins with %q", name)
		}
		return ""

	case "test":
		dir, test, ok := strings.Cut(name, " ")
		test, part, _ := strings.Cut(test, "/")
		switch {
		case !ok || !e.has(dir, test):
			return fmt.Sprintf("no %s in %s", test, dir)
		case part != "" && partFile(dir, part) == "" && !strings.Contains(e.tests[dir], `"`+part+`"`):
			return fmt.Sprintf("no part %s of %s in %s", part, test, dir)
		}
		return ""
	}
	return fmt.Sprintf("want script, test or difference, got %q", item)
}

// ofBoth matches the setting of scripts that make test-coredns runs, too.
var ofBoth = regexp.MustCompile(`(?m)^ *coredns: same$`)

// unstated returns why an item does not show a sentence: the scripts that are written for this list,
// and the list of Corefiles, have the sentence in front of the lines that show it.
func (e evidence) unstated(item, plugin, sentence string) string {
	var file string
	ofCoreDNS := false
	switch words := strings.Fields(item); {
	case words[0] == "script" && strings.HasPrefix(words[1], "coredns-"):
		file, ofCoreDNS = "testdata/script/"+words[1]+".txt", true
	case words[0] == "test":
		_, part, _ := strings.Cut(words[2], "/")
		file = partFile(words[1], part)
	}
	if file == "" {
		return ""
	}

	text, ok := e.tests[file]
	if !ok {
		data, _ := os.ReadFile(root + file)
		text = "\n" + string(data)
		e.tests[file] = text
	}
	if ofCoreDNS && !ofBoth.MatchString(text) {
		return file + " is not run with CoreDNS"
	}
	// A comment may begin with the plugin, and omit what its part of the file says.
	short := regexp.MustCompile(`( (is|are) (accepted|refused))?$`).ReplaceAllString(sentence, "")
	for _, mark := range []string{"\n# ", "\n# " + plugin + ": ", "\n+ ", "\n- "} {
		for _, words := range []string{sentence, short} {
			if _, after, ok := strings.Cut(text, mark+words+"\n"); ok && !beginsEmpty(after) {
				return ""
			}
		}
	}
	return file + " has no lines for it"
}

// beginsEmpty reports whether a sentence has no lines: another one follows, or another part of the file.
func beginsEmpty(after string) bool {
	after = strings.TrimLeft(after, "\n")
	return after == "" || slices.ContainsFunc([]string{"# ", "-- ", "+ ", "- ", "== "}, func(mark string) bool {
		return strings.HasPrefix(after, mark)
	})
}

// partFile returns the file with the part of a test, "" if the part is none of a file.
func partFile(dir, part string) string {
	switch {
	case part == "":
		return ""
	case dir == "test/dnstest":
		return "testdata/coredns/corefiles.txt" // parts are plugins
	case dir == "test/process":
		return "testdata/process/" + part + ".txt"
	case dir == "directive/etcd":
		return "directive/etcd/testdata/skydns/" + part
	}
	return ""
}

// has reports whether a directory has a test.
func (e evidence) has(dir, test string) bool {
	text, ok := e.tests[dir]
	if !ok {
		files, _ := filepath.Glob(root + dir + "/*_test.go")
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil {
				text += string(data)
			}
		}
		e.tests[dir] = text
	}
	return regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`).MatchString(text)
}
