// Package debian finds the programs of other projects that tests run beside the server: the
// servers, clients and validators of Debian. A test that needs one calls Program, and is skipped
// where it is missing.
//
// The table is the only list of them. The command install reads it, and so do the checks of
// which tests a machine cannot run.
package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// Complete is the environment variable with which a missing program fails a test.
const Complete = "SEAMARK_TEST_COMPLETE"

// packages has the Debian package of each program. A program with a slash is a file, which
// may be a pattern.
var packages = map[string]string{
	"/lib/systemd/systemd":                "systemd",
	"/usr/lib/*/knot/modules-*/dnstap.so": "knot-module-dnstap",
	"cc":                                  "gcc",
	"chromium":                            "chromium",
	"clang":                               "clang",
	"curl":                                "curl",
	"dig":                                 "bind9-dnsutils",
	"delv":                                "bind9-dnsutils",
	"dnsdist":                             "dnsdist",
	"dnsmasq":                             "dnsmasq-base",
	"dnssec-signzone":                     "bind9-utils",
	"dnssec-verify":                       "bind9-utils",
	"dnstap-ldns":                         "dnstap-ldns",
	"dumpcap":                             "wireshark-common",
	"fstrm_capture":                       "fstrm-bin",
	"groff":                               "groff",
	"haproxy":                             "haproxy",
	"ip":                                  "iproute2",
	"kdig":                                "knot-dnsutils",
	"knotd":                               "knot",
	"ldns-verify-zone":                    "ldnsutils",
	"linux.uml":                           "user-mode-linux",
	"llvm-strip":                          "llvm",
	"musl-gcc":                            "musl-tools",
	"named":                               "bind9",
	"nft":                                 "nftables",
	"nsd":                                 "nsd",
	"nsenter":                             "util-linux",
	"nsupdate":                            "bind9-dnsutils",
	"prometheus":                          "prometheus",
	"promtool":                            "prometheus",
	"qemu-s390x-static":                   "qemu-user-static",
	"rpm":                                 "rpm",
	"tcpdump":                             "tcpdump",
	"unbound":                             "unbound",

	"/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a": "libclang-rt-dev",
}

// exists reports whether Debian has a program for this architecture. apt-get installs nothing if one package is unknown.
func exists(name string) bool { return name != "linux.uml" || runtime.GOARCH == "amd64" }

// Program returns the path of a program of the table, also if it is in a directory of
// administrators. It skips the test if the program is missing; with the environment variable
// Complete the test fails instead.
func Program(t testing.TB, name string) string {
	t.Helper()
	pkg, ok := packages[name]
	if !ok {
		t.Fatalf("%s is not in the table of package debian", name)
	}

	path := find(name)
	switch {
	case path != "":
	case !exists(name):
		t.Skipf("Debian has no %s for %s", name, runtime.GOARCH)
	case os.Getenv(Complete) != "":
		t.Fatalf("%s is not installed: install the Debian package %s", name, pkg)
	default:
		t.Skipf("%s is not installed: install the Debian package %s, or run make programs as root", name, pkg)
	}
	return path
}

// Missing returns the programs of the table that the machine lacks, sorted, and the Debian
// packages that have them.
func Missing() (programs, debian []string) {
	for name, pkg := range packages {
		if find(name) == "" && exists(name) {
			programs = append(programs, name)
			debian = append(debian, pkg)
		}
	}
	slices.Sort(programs)
	slices.Sort(debian)
	return programs, slices.Compact(debian)
}

// find returns the path of a program, "" if there is none.
func find(name string) string {
	if filepath.IsAbs(name) {
		if files, _ := filepath.Glob(name); len(files) > 0 {
			return files[0]
		}
		return ""
	}
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}
