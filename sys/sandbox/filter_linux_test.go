package sandbox

import (
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A seccompData is struct seccomp_data.
type seccompData struct {
	Call, Audit uint32
	Pointer     uint64
	Arguments   [6]uint64
}

// A byteOrder is that of a machine.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// order returns the byte order of a machine.
func (m machine) order() byteOrder {
	if m.half == 4 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// run returns the result of a filter for a system call, as the kernel of a machine with a byte order.
func (p program) run(t *testing.T, order byteOrder, d seccompData) uint32 {
	t.Helper()
	data, err := binary.Append(nil, order, d)
	if err != nil {
		t.Fatal(err)
	}

	var a uint32
	for i := 0; i < len(p); i++ {
		holds := false
		switch s := p[i]; s.Code {
		case load:
			a = order.Uint32(data[s.K:])
			continue
		case end:
			return s.K
		case equal:
			holds = a == s.K
		case above:
			holds = a > s.K
		case anyBit:
			holds = a&s.K != 0
		default:
			t.Fatalf("statement %d: got code %#x, want one of those above", i, s.Code)
		}

		if holds {
			i += int(p[i].Jt)
		} else {
			i += int(p[i].Jf)
		}
	}
	t.Fatal("the filter has no result")
	return 0
}

// systemCalls returns the numbers of the system calls of an architecture, by the names of package unix.
func systemCalls(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+arch+".go"))
	if err != nil {
		t.Fatal(err)
	}

	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(?m)^\t(SYS_\w+) *= (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		numbers[m[1]] = uint32(n)
	}
	return numbers
}

// refusedNames returns the names of the calls in refused.
func refusedNames(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("filter_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "var refused = []uint32{")
	list, _, _ = strings.Cut(list, "\n}\n")
	if names = regexp.MustCompile(`\bSYS_\w+`).FindAllString(list, -1); len(names) != len(refused) {
		t.Fatalf("got %d names of %d refused calls", len(names), len(refused))
	}
	return names
}

// Each Linux platform of the releases has a filter; setFilter has an error for others.
func TestFilterOfEachPlatform(t *testing.T) {
	text, err := os.ReadFile("../../tools/release/main.go")
	if err != nil {
		t.Fatal(err)
	}
	released := map[string]bool{}
	for _, m := range regexp.MustCompile(`linux/([a-z0-9]+)`).FindAllStringSubmatch(string(text), -1) {
		released[m[1]] = true
	}
	for arch := range released {
		if _, ok := machines[arch]; !ok {
			t.Errorf("linux/%s: got no filter, want one for each platform of the releases", arch)
		}
	}
	if len(released) < 6 || len(released) != len(machines) {
		t.Errorf("got filters for %v and releases for %v, want the same", slices.Sorted(maps.Keys(machines)), released)
	}
}

// The filter of each machine, with the numbers of its architecture, refuses the system calls of the
// list, their variants, other architectures, x32 and unknown calls, and looks at the arguments of clone
// and socket. All other calls are allowed.
func TestFilterResults(t *testing.T) {
	for arch, m := range machines {
		t.Run(arch, func(t *testing.T) { testFilter(t, m, systemCalls(t, arch)) })
	}
	if m, ok := machines[runtime.GOARCH]; ok {
		numbers := systemCalls(t, runtime.GOARCH)
		for i, name := range refusedNames(t) {
			if numbers[name] != refused[i] {
				t.Errorf("%s: got number %d, want %d as in the filter", name, numbers[name], refused[i])
			}
		}
		if m.order().Uint16([]byte{0, 1}) != binary.NativeEndian.Uint16([]byte{0, 1}) {
			t.Errorf("%s: got another byte order than that of this machine", runtime.GOARCH)
		}
	}
}

// variants are calls that do what refused ones do, or give access to hardware, of some architectures.
var variants = []string{
	"kexec_file_load", "modify_ldt", "socketcall", "umount", "oldumount", "stime", "clock_settime64", "uselib", "iopl", "ioperm",
	"create_module", "pciconfig_write", "rtas", "s390_pci_mmio_write",
}

// testFilter checks the filter of a machine with the numbers of its architecture.
func testFilter(t *testing.T, m machine, numbers map[string]uint32) {
	number := func(name string) uint32 {
		n, ok := numbers[name]
		if !ok {
			t.Errorf("%s: got no such call of the architecture", name)
		}
		return n
	}
	own := calls{clone: number("SYS_CLONE"), clone3: number("SYS_CLONE3"), socket: number("SYS_SOCKET")}
	for _, name := range refusedNames(t) {
		own.refused = append(own.refused, number(name))
	}
	f := m.filter(own)

	type call struct {
		name string
		seccompData
		want uint32
	}
	var made []call
	add := func(name string, number, want uint32, arguments ...uint64) {
		d := seccompData{Call: number, Audit: m.audit}
		copy(d.Arguments[:], arguments)
		made = append(made, call{name, d, want})
	}

	special := []uint32{own.clone, own.clone3, own.socket}
	for _, n := range own.refused {
		add("listed", n, refuse)
		special = append(special, n)
	}
	for _, name := range variants {
		// s390x opens sockets by socketcall, which a filter cannot look into.
		n, ok := numbers["SYS_"+strings.ToUpper(name)]
		if !ok || name == "socketcall" && m.audit == unix.AUDIT_ARCH_S390X {
			continue
		}
		add(name, n, refuse)
		special = append(special, n)
		if m.refused[name] != n {
			t.Errorf("%s: got number %d, want %d", name, m.refused[name], n)
		}
	}
	for name, n := range numbers {
		if !slices.Contains(special, n) {
			add(name, n, allow)
		}
	}
	add("newest", newest, allow)
	add("clone3", own.clone3, unknown)
	add("later", newest+1, unknown)
	add("x32", x32|1, unknown)
	add("none", ^uint32(0), unknown)
	add("set_tls of ARM", 0xf0005, allow)

	clone := func(flags uint64) []uint64 {
		a := make([]uint64, 2)
		a[m.flags] = flags
		return a
	}
	add("clone of a thread", own.clone, allow, clone(unix.CLONE_VM|unix.CLONE_THREAD|unix.CLONE_SIGHAND)...)
	add("clone of a process", own.clone, allow, clone(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD|uint64(unix.SIGCHLD))...)
	for bit := uint64(1); bit <= newSpace; bit <<= 1 {
		if bit&newSpace != 0 {
			add("clone with a namespace", own.clone, refuse, clone(bit|uint64(unix.SIGCHLD))...)
		}
	}
	for family := range uint64(unix.AF_MAX) {
		want := uint32(refuse)
		if slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, family) {
			want = allow
		}
		add("socket", own.socket, want, family, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	}
	add("socket of netfilter", own.socket, refuse, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)

	for _, c := range made {
		if got := f.run(t, m.order(), c.seccompData); got != c.want {
			t.Errorf("%s, call %#x, arguments %#x: got %#x, want %#x", c.name, c.Call, c.Arguments, got, c.want)
		}
	}
	for _, audit := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_S390, unix.AUDIT_ARCH_PPC64, 0, m.audit ^ 1} {
		other := seccompData{Call: number("SYS_READ"), Audit: audit}
		if got := f.run(t, m.order(), other); got != unknown {
			t.Errorf("call of architecture %#x: got %#x, want %#x", audit, got, uint32(unknown))
		}
	}
}

// Each machine has a filter that the kernel's limits allow.
func TestFilterLength(t *testing.T) {
	for name, m := range machines {
		if n := len(m.filter(native)); n > unix.BPF_MAXINSNS {
			t.Errorf("%s: got %d statements, want at most %d", name, n, unix.BPF_MAXINSNS)
		}
	}
}
