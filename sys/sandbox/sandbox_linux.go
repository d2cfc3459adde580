package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// kept is the only capability that remains, if the thread has it: a reload may add an address with
// a port below 1024.
const kept = unix.CAP_NET_BIND_SERVICE

// Restrict reduces the privileges of the calling thread, which the caller has locked to its
// goroutine and does not unlock. It does as much as the kernel permits, and returns the errors of
// the rest.
func Restrict() error {
	// First: the kernel wants it before a filter of a thread without SYS_ADMIN.
	noNewPrivs := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

	errs := []error{wrap("setting no_new_privs", noNewPrivs)}
	bounding := dropBounding()
	if noNewPrivs != nil || !errors.Is(bounding, unix.EPERM) {
		// Without SETPCAP the set stays as it is. With no_new_privs it has no effect any more.
		errs = append(errs, wrap("dropping capabilities from the bounding set", bounding))
	}
	errs = append(errs,
		wrap("dropping capabilities", dropCapabilities()),
		wrap("setting the seccomp filter", setFilter()))
	return errors.Join(errs...)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// dropBounding drops all capabilities but the one that is kept from the bounding set.
func dropBounding() error {
	for c := range uintptr(64) {
		present, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // EINVAL: the kernel has no more
		}
		if present == 0 || c == kept {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// dropCapabilities drops all capabilities but the one that is kept from the other sets.
func dropCapabilities() error {
	header, sets, err := capabilities()
	if err != nil {
		return err
	}
	keep := sets[0].Permitted & (1 << kept)

	// The kernel drops from the ambient set what is not permitted and inheritable any more.
	sets = [2]unix.CapUserData{{Effective: keep, Permitted: keep, Inheritable: keep}}
	if err := unix.Capset(header, &sets[0]); err != nil || keep == 0 {
		return err
	}

	// A program of a user other than 0 begins with the ambient ones.
	err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, kept, 0, 0)
	if os.Geteuid() == 0 {
		return nil
	}
	return err
}

// capabilities returns the sets of the calling thread, each in two halves.
func capabilities() (header *unix.CapUserHeader, sets [2]unix.CapUserData, err error) {
	header = &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(header, &sets[0])
	return header, sets, err
}

// Current returns the privileges of the calling thread. Those of a process are equal in all its
// threads unless one has called Restrict.
func Current() (p Privileges) {
	_, sets, _ := capabilities() // cannot fail
	permitted := uint64(sets[1].Permitted)<<32 | uint64(sets[0].Permitted)
	for c := range 64 {
		switch {
		case permitted>>c&1 == 0:
		case c < len(names):
			p.Capabilities = append(p.Capabilities, names[c])
		default:
			p.Capabilities = append(p.Capabilities, strconv.Itoa(c))
		}
	}

	noNewPrivs, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	seccomp, _ := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	p.NoNewPrivs, p.Seccomp = noNewPrivs == 1, seccomp == unix.SECCOMP_MODE_FILTER
	return p
}

// names are the names of capabilities(7), by their numbers.
var names = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}
