// Package sandbox takes privileges from a process that does not need them: all capabilities but
// NET_BIND_SERVICE, the right to gain others, and system calls that a DNS server never makes. It
// does so for one thread and for the programs that this executes, because a new program begins
// with the privileges of the thread that has executed it, in all its threads. The command node
// calls it.
package sandbox

// Privileges are what the kernel permits a thread.
type Privileges struct {
	Capabilities []string // permitted, by their names without CAP_
	NoNewPrivs   bool     // programs that it executes gain none
	Seccomp      bool     // there is a filter of system calls
}
