//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Names of the images. kubeadm names CoreDNS's, and containerd's configuration pause's.
const (
	pauseImage   = "registry.k8s.io/pause:3.10"
	corednsImage = "registry.k8s.io/coredns/coredns:v" + corednsVersion
	glibcImage   = "seamark.local/client-glibc:1"
	muslImage    = "seamark.local/client-musl:1"
	seamarkImage = "seamark.local/seamark:cluster"
)

// clientPrograms are the machine's programs in the image of clients with glibc.
var clientPrograms = []string{
	"sh", "dig", "host", "nslookup", "getent", "cat", "ls", "sleep", "timeout", "seq", "date", "env",
}

// An entry is a file of an image.
type entry struct {
	path string
	data []byte
	mode int64
}

// writeImages writes the archives of all images, which nodes import, and the programs for
// users of the cluster.
func (c *cluster) writeImages(ctx context.Context) error {
	for _, dir := range []string{"images", "bin"} {
		if err := os.MkdirAll(c.file(dir), 0o755); err != nil {
			return err
		}
	}
	kubectl := filepath.Join("..", "..", "programs", "kubernetes-"+c.Options.Kubernetes, "kubectl")
	if err := os.Symlink(kubectl, c.file("bin", "kubectl")); err != nil {
		return err
	}

	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	pause := []entry{{"pause", self, 0o755}}
	coredns, err := os.ReadFile(filepath.Join(c.dir, "programs", "coredns-"+corednsVersion, "coredns"))
	if err != nil {
		return err
	}
	dns := []entry{{"coredns", coredns, 0o755}}
	glibc, err := glibcFiles(ctx, clientPrograms)
	if err != nil {
		return err
	}
	glibcResolve, err := c.compileResolve(ctx, "gcc")
	if err != nil {
		return err
	}
	glibc = append(glibc, glibcResolve)
	musl, err := c.compileResolve(ctx, "musl-gcc", "-static")
	if err != nil {
		return err
	}

	const nobody = "65532:65532"
	err = errors.Join(
		writeImage(c.file("images", "pause.tar"), []string{pauseImage}, nobody, pause, "/pause", "pause"),
		writeImage(c.file("images", "coredns.tar"), []string{corednsImage}, nobody, dns, "/coredns"),
		writeImage(c.file("images", "client-glibc.tar"), []string{glibcImage}, "0:0", glibc, "/bin/sleep", "infinity"),
		writeImage(c.file("images", "client-musl.tar"), []string{muslImage}, "0:0", []entry{musl}, "/resolve"),
	)
	if err != nil {
		return err
	}
	return c.writeSeamark(ctx)
}

// writeSeamark builds the server, and its image as make image does. The archive is kept as long
// as the program stays the same: go build leaves one alone that is up to date.
func (c *cluster) writeSeamark(ctx context.Context) error {
	program := filepath.Join(c.dir, "programs", "seamark")
	_, err := goCommand(ctx, c.Options.Source, "build", "-trimpath", "-tags", "grpcnotrace", "-buildvcs=false",
		"-pgo=off", "-o", program, "./cmd/seamark")
	if err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join("..", "..", "programs", "seamark"), c.file("bin", "seamark")); err != nil {
		return err
	}

	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	kept := filepath.Join(c.dir, "programs", "seamark-image-"+sum(data)[:16])
	if _, err := os.Stat(kept); err != nil {
		if err := c.removeSeamark(); err != nil {
			return err
		}
		_, err := goCommand(ctx, filepath.Join(c.Options.Source, "tools"), "run", "./image", "-source", "..",
			"-output", kept, "-platforms", "linux/"+runtime.GOARCH, "-tag", seamarkImage, "-pgo", "off")
		if err != nil {
			return errors.Join(err, c.removeSeamark()) // with the temporary directory of an interrupted one
		}
	}
	archive := "seamark-linux-" + runtime.GOARCH + ".tar"
	return os.Symlink(filepath.Join("..", "..", "programs", filepath.Base(kept), archive), c.file("images", archive))
}

// removeSeamark removes the archives of former programs.
func (c *cluster) removeSeamark() error {
	dirs, err := filepath.Glob(filepath.Join(c.dir, "programs", "seamark-image-*"))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// glibcFiles returns programs of the machine with the libraries that they load.
func glibcFiles(ctx context.Context, programs []string) ([]entry, error) {
	files := map[string]string{} // the file of the machine, by its path in the image
	for _, name := range programs {
		program := find(name)
		if program == "" {
			return nil, fmt.Errorf("the program %s is missing", name)
		}
		files["bin/"+name] = program

		out, err := output(exec.CommandContext(ctx, "ldd", program))
		if err != nil {
			return nil, err
		}
		for _, library := range libraries(string(out)) {
			files[strings.TrimPrefix(library, "/")] = library
		}
	}

	entries := []entry{{"etc/nsswitch.conf", []byte("hosts: files dns\n"), 0o644}}
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{to, data, 0o755})
	}
	return entries, nil
}

// library matches the absolute path of a library in a line of ldd.
var library = regexp.MustCompile(`(?m)^\s(?:.* => )?(/\S+) \(0x`)

// libraries returns the paths in the output of ldd.
func libraries(out string) (paths []string) {
	for _, match := range library.FindAllStringSubmatch(out, -1) {
		paths = append(paths, match[1])
	}
	return paths
}

//go:embed files/resolve.c
var resolveSource []byte

// compileResolve compiles the program resolve for the C library of a compiler.
func (c *cluster) compileResolve(ctx context.Context, compiler string, flags ...string) (entry, error) {
	source, program := c.file("resolve.c"), c.file("resolve")
	if err := os.WriteFile(source, resolveSource, 0o644); err != nil {
		return entry{}, err
	}
	if _, err := output(exec.CommandContext(ctx, compiler, append(flags, "-O2", "-o", program, source)...)); err != nil {
		return entry{}, err
	}
	data, err := os.ReadFile(program)
	return entry{"resolve", data, 0o755}, err
}

// writeImage writes an archive with an image of one layer, as docker save does and ctr imports.
func writeImage(file string, names []string, user string, entries []entry, entrypoint ...string) error {
	layer, err := layerOf(entries)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"User": user, "Entrypoint": entrypoint, "WorkingDir": "/", "Env": []string{"PATH=/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": sum(config) + ".json", "RepoTags": names, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return err
	}

	archive, err := tarOf([]entry{
		{sum(config) + ".json", config, 0o644}, {"layer.tar", layer, 0o644}, {"manifest.json", manifest, 0o644},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, archive, 0o644)
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// layerOf returns entries, sorted, with their directories.
func layerOf(entries []entry) ([]byte, error) {
	all := slices.Clone(entries)
	seen := map[string]bool{".": true}
	for _, e := range entries {
		for dir := path.Dir(e.path); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, entry{path: dir + "/", mode: 0o755})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return tarOf(all)
}

func tarOf(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Size: int64(len(e.data))}
		if strings.HasSuffix(e.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
