// Command coredns writes the table of CoreDNS's plugins and their options, with the versions
// that have them, which seamark check --coredns uses. It reads the sources of CoreDNS's
// versions, which it downloads from the module proxy:
//
//	go run ./coredns -output ../cmd/coredns.txt
//
// It downloads a version only if the versions around it differ. With -report it writes no table, and prints
// the plugins, options and metrics of the newest version that Seamark does not know.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/coredns/coredns"

func main() {
	output := flag.String("output", "../cmd/coredns.txt", "the table")
	newest := flag.String("newest", "1.15.0", "the newest version of CoreDNS")
	isReport := flag.Bool("report", false, "print what the newest version has that Seamark does not know")
	source := flag.String("source", "", "with -report: a directory with the sources of a version, in place of the newest one")
	flag.Parse()
	log.SetFlags(0)

	if *isReport {
		if err := printReport(*source, *output); err != nil {
			log.Fatal(err)
		}
		return
	}

	dir, err := download(*newest)
	if err != nil {
		log.Fatal(err)
	}

	versions, err := released(dir)
	if err != nil {
		log.Fatal(err)
	}

	h, err := read(versions, func(version string) (features, error) {
		dir, err := download(version)
		if err != nil {
			return nil, err
		}
		log.Printf("reading %s", dir)
		return readSource(dir)
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := os.WriteFile(*output, []byte(h.table(versions)), 0o644); err != nil {
		log.Fatal(err)
	}
}

// download returns the directory of the sources of a version.
func download(version string) (dir string, err error) {
	c := exec.Command("go", "mod", "download", "-json", module+"@v"+version)
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, _ := c.Output() // its JSON has the error
	var result struct{ Dir, Error string }
	if err := json.Unmarshal(out, &result); err != nil {
		return "", fmt.Errorf("go mod download %s@v%s: %w", module, version, err)
	}
	if result.Error != "" {
		return "", fmt.Errorf("go mod download %s@v%s: %s", module, version, result.Error)
	}
	return result.Dir, nil
}

// released returns the versions from 1.0.0 on, the oldest first, for which the sources
// of a version have release notes.
func released(dir string) (versions []string, err error) {
	notes, err := os.ReadDir(dir + "/notes")
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		version := strings.TrimSuffix(strings.TrimPrefix(n.Name(), "coredns-"), ".md")
		if strings.HasPrefix(version, "1.") {
			versions = append(versions, version)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	return versions, nil
}

func numbers(version string) (n []int) {
	for _, part := range strings.Split(version, ".") {
		i, err := strconv.Atoi(part)
		if err != nil {
			log.Fatalf("version %s: %v", version, err)
		}
		n = append(n, i)
	}
	return n
}

// A history has the features of versions. Versions between two equal ones are left out, and so
// are versions that cannot be read.
type history map[string]features

// read reads the first and the last version, and between different versions the one in the
// middle.
func read(versions []string, source func(version string) (features, error)) (history, error) {
	h := history{}
	missing := map[string]bool{}
	get := func(i int) (features, bool) {
		v := versions[i]
		if h[v] == nil && !missing[v] {
			f, err := source(v)
			if err != nil {
				log.Printf("%s is left out: %v", v, err)
				missing[v] = true
			} else {
				h[v] = f
			}
		}
		return h[v], h[v] != nil
	}

	var split func(first, last int)
	split = func(first, last int) {
		if last-first < 2 || h[versions[first]].equal(h[versions[last]]) {
			return
		}
		// The one in the middle, or the next one after it that can be read, or the next one before it.
		middle := (first + last) / 2
		for k := range last - first - 1 {
			i := middle + k
			if i >= last {
				i = last - 1 - k
			}
			if _, ok := get(i); ok {
				split(first, i)
				split(i, last)
				return
			}
		}
	}

	last := len(versions) - 1
	for _, i := range []int{0, last} {
		if _, ok := get(i); !ok {
			return nil, fmt.Errorf("version %s cannot be read", versions[i])
		}
	}

	split(0, last)
	return h, nil
}

// table returns a line for each time that a feature exists: its name, the first version that
// has it and, unless the newest has it, the first version that has not.
func (h history) table(versions []string) string {
	var b strings.Builder
	b.WriteString("# Plugins of CoreDNS and their options: the first version with it and, if it was removed, the first without it.\n" +
		"# Made by go run ./coredns in tools.\n")
	all := features{}
	for _, f := range h {
		for name := range f {
			all[name] = true
		}
	}

	for _, name := range all.sorted() {
		since := ""  // the version from which on it exists, or ""
		unread := "" // the first version after the last one that was read
		for _, v := range versions {
			f := h[v]
			switch {
			case f == nil:
				unread = cmp.Or(unread, v)
				continue
			case f[name] && since == "":
				// A version that cannot be read may have it: an error about it would be wrong.
				since = cmp.Or(unread, v)
			case !f[name] && since != "":
				fmt.Fprintf(&b, "%s %s %s\n", name, since, v)
				since = ""
			}

			unread = ""
		}

		if since != "" {
			fmt.Fprintf(&b, "%s %s\n", name, since)
		}
	}

	return b.String()
}
