//go:build linux

package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	o, err := parse("up", []string{"-dir", "d", "-kubernetes", "v1.37.2", "-port", "7000"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Kubernetes != "1.37.2" || o.Port != 7000 || o.Nodes != 1 || !strings.HasSuffix(o.Dir, "/cluster/d") {
		t.Errorf("parse: got %+v", o)
	}

	o, err = parse("up", strings.Fields("-proxy nftables -dual-stack -nodes 3 -kwok 100"))
	if err != nil || o.Proxy != "nftables" || !o.DualStack || o.Nodes != 3 || o.Fake != 100 {
		t.Errorf("parse: got %+v, %v", o, err)
	}

	for minor, version := range kubernetes() {
		o, err := parse("up", []string{"-kubernetes", minor})
		if err != nil || o.Kubernetes != version || !strings.HasPrefix(version, minor+".") {
			t.Errorf("parse -kubernetes %s: got %q, %v, want %s", minor, o.Kubernetes, err, version)
		}
	}
}

func TestParseRefused(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-kubernetes 1.33", "-kubernetes 1.33: not tried"},
		{"-kubernetes 1.37.99", "-kubernetes 1.37.99: not tried"},
		{"-kubernetes latest", "-kubernetes latest: not tried"},
		{"-proxy userspace", "-proxy userspace: not tried"},
		{"-nodes 0", "-nodes 0"},
		{"-nodes 4", "-nodes 4"},
		{"-kwok -1", "-kwok -1"},
		{"-kwok 101", "-kwok 101"},
		{"-port 0", "-port 0"},
		{"-port 65536", "-port 65536"},
		{"-nodes many", "many"},
		{"-unknown", "-unknown"},
		{"argument", `"argument"`},
		{"-nodes 0 -proxy userspace -port 0", "-proxy userspace"},
		{"-nodes 0 -proxy userspace -port 0", "-port 0"},
	} {
		_, err := parse("up", strings.Fields(test.args))
		if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("parse %s: got the error %v, want one with %s", test.args, err, test.want)
		}
	}
}

func TestMissingPrograms(t *testing.T) {
	all := func(name string) string { return "/bin/" + name }
	if err := checkPrograms(required, all); err != nil {
		t.Errorf("nothing is missing: got the error %v", err)
	}

	err := checkPrograms(required, func(name string) string {
		if name == "runc" || name == "dig" || name == "getent" || name == "ldd" {
			return ""
		}
		return all(name)
	})
	const want = "programs are missing: dig, getent, ldd, runc; on Debian: apt-get install bind9-dnsutils libc-bin runc"
	if err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %s", err, want)
	}
}

func TestSpaceMissing(t *testing.T) {
	dir := t.TempDir()
	if err := checkSpace(dir, 1); err != nil {
		t.Error(err)
	}
	if err := checkSpace(dir, 1<<62); err == nil || !strings.Contains(err.Error(), "a start needs") {
		t.Errorf("4 EB: got the error %v, want one with the free space", err)
	}
}

func TestSplitCommand(t *testing.T) {
	for _, test := range []struct {
		args, dir string
		node      int
		command   string
	}{
		{"", "cluster", 1, "/bin/sh"},
		{"ip -br address", "cluster", 1, "ip -br address"},
		{"-dir /d dig -t A example.com", "d", 1, "dig -t A example.com"},
		{"-node 3 ip address", "cluster", 3, "ip address"},
	} {
		dir, node, command, err := splitCommand(strings.Fields(test.args))
		if err != nil || filepath.Base(dir) != test.dir || node != test.node || strings.Join(command, " ") != test.command {
			t.Errorf("exec %s: got %s, %d, %q, %v, want %s, %d, %s",
				test.args, dir, node, command, err, test.dir, test.node, test.command)
		}
	}
}
