package build

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// notices returns the licenses and notices of the modules that binary is built from,
// which must be distributed with it.
func (r Release) notices(binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	directories, err := r.directories(info)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	fmt.Fprintf(&out, "Seamark %s contains the Go standard library and these modules.\n", r.Version)
	for _, name := range slices.Sorted(maps.Keys(directories)) {
		directory := directories[name]
		files, err := licenses(directory)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: no license in %s", name, directory)
		}
		if name == "golang.org/x/sys" {
			name = "Go, " + name // one license for both; a distribution's GOROOT may lack its file
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "\n%s\n%s: %s\n%[1]s\n\n%[4]s", strings.Repeat("-", 80), name, filepath.Base(file), text)
		}
	}

	return out.Bytes(), nil
}

// directories returns the directories of the modules that a binary is built from, by path.
func (r Release) directories(info *buildinfo.BuildInfo) (map[string]string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	for _, m := range info.Deps {
		list.Args = append(list.Args, m.Path)
	}
	list.Dir, list.Stderr = r.Source, os.Stderr
	lines, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}

	all := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		path, directory, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[path] = directory
	}
	return all, nil
}

// licenses returns the files of a module's directory with a license or a notice.
func licenses(directory string) (files []string, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		for _, start := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"} {
			if strings.HasPrefix(name, start) && !e.IsDir() {
				files = append(files, filepath.Join(directory, e.Name()))
			}
		}
	}
	return files, nil
}

// spdxLicense returns the SPDX expression of a module's license, or NOASSERTION if its text is not
// that of a known license.
func spdxLicense(directory string) (string, error) {
	files, err := licenses(directory)
	if err != nil {
		return "", err
	}

	found := map[string]bool{}
	for _, file := range files {
		if name := strings.ToUpper(filepath.Base(file)); strings.HasPrefix(name, "NOTICE") || strings.HasPrefix(name, "PATENTS") {
			continue // beside the license
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < 75 { // the tool's own advice; the rest are headings and copyright lines
			return noAssertion, nil
		}
		for _, m := range cover.Match {
			found[m.ID] = true
		}
	}
	if len(found) == 0 {
		return noAssertion, nil
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " AND "), nil
}
