//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	const v1 = `30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,clone_children
32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 24 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/systemd/agent,name=systemd
35 24 0:31 / / rw - ext4 /dev/vda rw
`
	const v2 = "36 24 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	for _, test := range []struct{ name, mountinfo, controllers, want, err string }{
		{"version 1", v1, "", "cpu,cpuacct cpuset memory pids name=systemd", ""},
		{"version 1, and 2 without controllers", v1 + v2, "", "cpu,cpuacct cpuset memory pids name=systemd", ""},
		{"no pids", strings.ReplaceAll(v1, "pids", "freezer"), "", "", "controller pids"},
		{"nothing", "", "", "", "controller cpu of"},
		{"version 2", v2, "cpuset cpu io memory pids", "", ""},
		{"version 2 without cpuset", v2, "cpu io memory pids", "", ""},
		{"version 2 without pids", v2, "cpuset cpu io memory", "", "controller pids"},
		{"both versions", v1 + v2, "cpuset cpu io memory pids", "", "want one version"},
	} {
		hs, err := parseHierarchies(test.mountinfo, func(string) string { return test.controllers })
		var got []string
		for _, h := range hs {
			got = append(got, h.controllers)
		}
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got the error %v, want one with %q", test.name, err, test.err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func TestRequirement(t *testing.T) {
	const own = `module k8s.io/kubernetes

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/apimachinery => ./staging/src/k8s.io/apimachinery
	example.com/other => example.com/fork v1.0.0
)
`
	const want = `module programs

go 1.26.0

require k8s.io/kubernetes v1.36.3

replace k8s.io/api => k8s.io/api v0.36.3

replace k8s.io/apimachinery => k8s.io/apimachinery v0.36.3
`
	if got := requirement(module{path: "k8s.io/kubernetes", version: "1.36.3"}, own); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestInotifyAtLimit(t *testing.T) {
	if err := checkInotify(1); err != nil {
		t.Fatal(err)
	}

	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)

	const want = "0 of 2 instances of inotify are left"
	if err := checkInotify(2); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without descriptors: got the error %v, want %q", err, want)
	}
}

// The error of a node that does not become ready has the end of the log of each of its programs.
func TestLogEnds(t *testing.T) {
	c := &cluster{dir: t.TempDir()}
	for name, text := range map[string]string{
		"node1": "", "node1-kubelet": "no socket\n", "node1-containerd": "too many open files\n", "node2-kubelet": "ready\n",
	} {
		if err := os.MkdirAll(filepath.Dir(c.log(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.log(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	const want = "\nnode1-containerd.log ends with:\ntoo many open files\nnode1-kubelet.log ends with:\nno socket"
	if got := c.logEnds("node1"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLibraries(t *testing.T) {
	const out = `	linux-vdso.so.1 (0x00007ffd3a5f6000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2f7a400000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f2f7a6f2000)
	libmissing.so => not found
`
	got := strings.Join(libraries(out), " ")
	if want := "/lib/x86_64-linux-gnu/libc.so.6 /lib64/ld-linux-x86-64.so.2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWriteImage reads an archive as ctr does: the manifest names the configuration and the
// layers, and the configuration has the hash of each layer.
func TestWriteImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	entries := []entry{{"usr/bin/b", []byte("program"), 0o755}, {"etc/a", []byte("text"), 0o644}}
	if err := writeImage(file, []string{"seamark.local/x:1"}, "0:0", entries, "/usr/bin/b", "arg"); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	outer, _ := readTar(t, archive)

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(outer["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(outer[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := outer[manifest[0].Layers[0]]
	if got, want := config.RootFS.DiffIDs, []string{"sha256:" + sum(layer)}; !slices.Equal(got, want) {
		t.Errorf("hashes of the layers: got %q, want %q", got, want)
	}
	if got := config.Config.Entrypoint; !slices.Equal(got, []string{"/usr/bin/b", "arg"}) {
		t.Errorf("entrypoint: got %q", got)
	}

	inner, order := readTar(t, layer)
	if got, want := strings.Join(order, " "), "etc/ etc/a usr/ usr/bin/ usr/bin/b"; got != want {
		t.Errorf("entries: got %s, want %s, each after its directory", got, want)
	}
	if string(inner["usr/bin/b"]) != "program" {
		t.Errorf("usr/bin/b: got %q", inner["usr/bin/b"])
	}
}

func readTar(t *testing.T, data []byte) (files map[string][]byte, order []string) {
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		order = append(order, h.Name)
	}
}

func TestFollow(t *testing.T) {
	for _, test := range []struct{ name, text, out, err string }{
		{"ready", "== etcd\nready\nlater\n", "== etcd\n", ""},
		{"error", "== etcd\ncluster: etcd: no\nmore\n", "== etcd\n",
			"etcd: no\nmore\nthe cluster's first process has ended"},
		{"killed", "== etcd\n", "== etcd\n", "the cluster's first process has ended"},
	} {
		c := newTestCluster(t)
		var out strings.Builder
		c.out = &out
		err := c.follow(strings.NewReader(test.text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.err || out.String() != test.out {
			t.Errorf("%s: got %q, %q, want %q, %q", test.name, out.String(), got, test.out, test.err)
		}
	}
}

// TestRelayHalfClose checks that either side may end its half first.
func TestRelayHalfClose(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	server, front := listen(), listen()
	go relay(front, server.Addr().String())
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request, _ := io.ReadAll(conn)
		conn.Write(append([]byte("got "), request...))
	}()

	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte("a request"))
	conn.(*net.TCPConn).CloseWrite()
	if reply, err := io.ReadAll(conn); err != nil || string(reply) != "got a request" {
		t.Errorf("got %q, %v, want %q", reply, err, "got a request")
	}
}

func TestRemoveGroup(t *testing.T) {
	base := filepath.Join(t.TempDir(), "g")
	if err := os.MkdirAll(filepath.Join(base, "node1", "kubepods", "pod"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := newTestCluster(t)
	c.Groups = []string{base, base + "-missing"}
	if err := c.removeGroups(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base); err == nil {
		t.Errorf("%s is left", base)
	}
}

func TestTemplates(t *testing.T) {
	c := newTestCluster(t)
	file := c.file("cni.json")
	for _, test := range []struct {
		pods []string
		want int
	}{{[]string{"10.244.1.0/24"}, 1}, {[]string{"10.244.1.0/24", "fd00:244:0:1::/64"}, 2}} {
		if err := writeTemplate("cni.json", file, map[string]any{"Pods": test.pods}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Plugins []struct{ IPAM struct{ Ranges [][]any } }
		}
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if got := len(list.Plugins[0].IPAM.Ranges); got != test.want {
			t.Errorf("%s: got %d ranges, want %d", test.pods, got, test.want)
		}
	}
}
