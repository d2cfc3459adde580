package build

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// notices returns the licenses and notices of the modules that binary is built from,
// which must be distributed with it.
func (r Release) notices(binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}

	list := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	for _, m := range info.Deps {
		list.Args = append(list.Args, m.Path)
	}

	list.Dir, list.Stderr = r.Source, os.Stderr
	modules, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}

	var out bytes.Buffer
	fmt.Fprintf(&out, "Seamark %s contains the Go standard library and these modules.\n", r.Version)
	for line := range strings.Lines(string(modules)) {
		name, directory, _ := strings.Cut(strings.TrimSpace(line), " ")
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
