package sandbox

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are system calls that a DNS server never makes. Many need a capability, but are a way
// into the kernel all the same.
//
// It is not a list of what is allowed: programs of the directive on may need anything else. A
// refused call fails and does not kill, so that a mistake in the list costs one operation and not
// the DNS of a node.
var refused = []uint32{
	// Mounts and namespaces; clone is checked by its flags.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT,

	// Memory and files of other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,

	// Parts of the kernel in which many have found errors.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_FANOTIFY_INIT,

	// The machine.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_REBOOT, unix.SYS_SYSLOG, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// newest is the last system call that refused was compared with. Later ones do not exist for the
// process: a release of Go that uses one does without it, as on a kernel of before.
const newest = unix.SYS_RSEQ_SLICE_YIELD

// calls are the numbers of the system calls that a filter has.
type calls struct {
	refused               []uint32
	clone, clone3, socket uint32
}

// native are those of the architecture of the program. Tests have those of others.
var native = calls{refused: refused, clone: unix.SYS_CLONE, clone3: unix.SYS_CLONE3, socket: unix.SYS_SOCKET}

// A machine is what filters of an architecture need.
type machine struct {
	audit   uint32            // in struct seccomp_data
	half    uint32            // offset of the lower half of an argument: 4 if the higher one is first
	flags   uint32            // the argument of clone with the flags
	refused map[string]uint32 // calls that package unix does not have for all architectures
}

// machines are the architectures of the releases. On s390x Go opens sockets by socketcall, whose
// arguments a filter cannot read.
var machines = map[string]machine{
	"amd64": {audit: unix.AUDIT_ARCH_X86_64, refused: map[string]uint32{
		"kexec_file_load": 320, "modify_ldt": 154, "uselib": 134, "iopl": 172, "ioperm": 173, "create_module": 174,
	}},
	"arm": {audit: unix.AUDIT_ARCH_ARM, refused: map[string]uint32{
		"kexec_file_load": 401, "clock_settime64": 404, "uselib": 86, "pciconfig_write": 273,
	}},
	"arm64": {audit: unix.AUDIT_ARCH_AARCH64, refused: map[string]uint32{"kexec_file_load": 294}},
	"ppc64le": {audit: unix.AUDIT_ARCH_PPC64LE, refused: map[string]uint32{
		"kexec_file_load": 382, "socketcall": 102, "umount": 22, "stime": 25, "uselib": 86, "ioperm": 101, "iopl": 110,
		"modify_ldt": 123, "create_module": 127, "pciconfig_write": 199, "rtas": 255,
	}},
	"riscv64": {audit: unix.AUDIT_ARCH_RISCV64, refused: map[string]uint32{"kexec_file_load": 294}},
	"s390x": {audit: unix.AUDIT_ARCH_S390X, half: 4, flags: 1, refused: map[string]uint32{
		"kexec_file_load": 381, "umount": 22, "uselib": 86, "create_module": 127, "s390_pci_mmio_write": 352,
	}},
}

// Codes and offsets of filters. An argument is at firstArg + 8*number + half.
const (
	load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	above    = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	anyBit   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	end      = unix.BPF_RET | unix.BPF_K
	call     = 0 // the number of the system call
	audit    = 4
	firstArg = 16

	allow    = unix.SECCOMP_RET_ALLOW
	refuse   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	private  = 0xf0000 // the calls of ARM alone, such as that of the thread pointer
	x32      = 1 << 30 // a call of the x32 ABI, which has the audit value of amd64
	newSpace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// A program is a filter, or a part of one.
type program []unix.SockFilter

func (p *program) add(code uint16, k uint32) { *p = append(*p, unix.SockFilter{Code: code, K: k}) }

// when adds a comparison, and what follows if it holds.
func (p *program) when(code uint16, k uint32, follows func()) {
	p.add(code, k)
	at := len(*p)
	follows()
	(*p)[at-1].Jf = uint8(len(*p) - at)
}

// returns adds a comparison, and the result if it holds.
func (p *program) returns(code uint16, k, result uint32) {
	p.when(code, k, func() { p.add(end, result) })
}

// filter returns the filter for a machine with these numbers.
func (m machine) filter(c calls) (p program) {
	argument := func(n uint32) { p.add(load, firstArg+8*n+m.half) }

	// Calls of another architecture, such as those of i386 on amd64, have other numbers.
	p.add(load, audit)
	p = append(p, unix.SockFilter{Code: equal, Jt: 1, K: m.audit})
	p.add(end, unknown)

	p.add(load, call)
	p.returns(above, x32-1, unknown)
	p.returns(above, private-1, allow)
	p.returns(above, newest, unknown)
	p.returns(equal, c.clone3, unknown) // its flags are in memory; C libraries use clone then
	for _, number := range slices.Concat(c.refused, slices.Collect(maps.Values(m.refused))) {
		p.returns(equal, number, refuse)
	}

	p.when(equal, c.clone, func() {
		argument(m.flags)
		p.returns(anyBit, newSpace, refuse)
		p.add(end, allow)
	})
	p.when(equal, c.socket, func() {
		argument(0)
		for _, family := range []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
			p.returns(equal, family, allow)
		}
		p.when(equal, unix.AF_NETLINK, func() { // lists interfaces and addresses
			argument(2)
			p.returns(equal, unix.NETLINK_ROUTE, allow)
		})
		p.add(end, refuse)
	})
	p.add(end, allow)
	return p
}

// setFilter sets the filter of the calling thread.
func setFilter() error {
	m, ok := machines[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is none for %s", runtime.GOARCH)
	}
	f := m.filter(native)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}

	// Before Linux 5.16 a filter turns speculation off unless it asks not to, which slows down the
	// thread. The process runs no code of others that could make use of it.
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&prog)))
	if errno == unix.EINVAL { // before Linux 4.17, without that flag
		_, _, errno = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	}
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
