package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// newestRelease returns the newest version that the module proxy has, without those for tests.
func newestRelease() (string, error) {
	c := exec.Command("go", "list", "-m", "-versions", module)
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m -versions %s: %w", module, err)
	}

	versions := strings.Fields(string(out))[1:] // behind the name of the module
	versions = slices.DeleteFunc(versions, func(v string) bool { return !strings.HasPrefix(v, "v1.") || strings.Contains(v, "-") })
	if len(versions) == 0 {
		return "", fmt.Errorf("go list -m -versions %s: got no version", module)
	}
	return strings.TrimPrefix(versions[len(versions)-1], "v"), nil
}

// report writes a line for each plugin, option and metric of the sources in dir that Seamark does not know, or that
// they lack. table is the text of cmd/coredns.txt, and page that of docs/reference/metrics.md.
func report(w io.Writer, dir, table, page string) error {
	f, err := readSource(dir)
	if err != nil {
		return err
	}
	metrics, err := readMetrics(dir)
	if err != nil {
		return err
	}
	documented, err := documentedMetrics(dir)
	if err != nil {
		return err
	}

	known := features{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		n := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "1.") })
		if n >= 0 && n == len(words)-1 && !strings.HasPrefix(line, "#") { // no version without it
			known[strings.Join(words[:n], " ")] = true
		}
	}

	for _, name := range f.sorted() {
		if plugin, option, isOption := strings.Cut(name, " "); !known[name] && isOption {
			fmt.Fprintf(w, "new option: %s of %s\n", option, plugin)
		} else if !known[name] {
			fmt.Fprintf(w, "new plugin: %s\n", name)
		}
	}
	for _, name := range known.sorted() {
		if !f[name] {
			fmt.Fprintf(w, "removed: %s\n", name)
		}
	}
	reportMetrics(w, metrics, documented, page)
	return nil
}

// reportMetrics writes a line for each metric that a page does not mention, or documents with another type or
// other labels.
func reportMetrics(w io.Writer, metrics map[string]metric, documented []string, page string) {
	known := pageMetrics(page)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m, ok := known[name]
		switch {
		case ok && m != metrics[name]:
			fmt.Fprintf(w, "other metric: %s, and the page has %s\n", metrics[name], m)
		case !ok && !strings.Contains(page, "`"+name+"`"):
			fmt.Fprintf(w, "new metric: %s\n", metrics[name])
		}
	}

	for _, name := range documented {
		_, isDeclared := metrics[name]
		if _, ok := known[name]; !ok && !isDeclared && !strings.Contains(page, "`"+name+"`") {
			fmt.Fprintf(w, "metric of a document: %s\n", name)
		}
	}
}

// printReport prints the report about the sources in dir, or, if it is "", about the newest version.
func printReport(dir, table string) error {
	if dir == "" {
		version, err := newestRelease()
		if err != nil {
			return err
		}
		fmt.Println("CoreDNS", version)
		if dir, err = download(version); err != nil {
			return err
		}
	}

	known, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(filepath.Dir(table), "../docs/reference/metrics.md"))
	if err != nil {
		return err
	}
	return report(os.Stdout, dir, string(known), string(page))
}
