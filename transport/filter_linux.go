package transport

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Offsets in a packet for a classic BPF program (linux/filter.h): the IP header begins
// at networkHeader, and a load from randomNumber returns a random number.
const (
	networkHeader = -0x100000 & math.MaxUint32
	randomNumber  = (-0x1000 + 56) & math.MaxUint32
)

// attachFilter makes the kernel drop a random part of the packets of limited clients
// before they occupy the socket's buffer. It replaces the filter that is attached.
func attachFilter(fd int, limits []limit) error {
	program := filter(limits)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// detachFilter has no effect if no filter is attached.
func detachFilter(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) }

// filter returns a program that returns the length of a packet to keep it, and zero to
// drop it. It compares the source address with each client's address. From the
// client's threshold on, which it leaves in register A, random numbers mean to drop.
func filter(limits []limit) (program []unix.SockFilter) {
	const (
		load        = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		byteAt      = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		jumpIfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		keepAll     = math.MaxUint32
	)
	add := func(code uint16, k uint32, jumps ...uint8) {
		i := unix.SockFilter{Code: code, K: k}
		if len(jumps) > 0 {
			i.Jt, i.Jf = jumps[0], jumps[1]
		}
		program = append(program, i)
	}

	var matches []int // indexes of the jumps of clients to the end
	match := func(passed float64) {
		add(unix.BPF_LD|unix.BPF_IMM, uint32(passed*math.MaxUint32))
		matches = append(matches, len(program))
		add(unix.BPF_JMP|unix.BPF_JA, 0)
	}

	// The upper half of the first byte is the version of IP.
	add(byteAt, networkHeader)
	add(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 4)
	add(jumpIfEqual, 4, 1, 0)
	other := len(program)
	add(unix.BPF_JMP|unix.BPF_JA, 0)

	// IPv4: the source is at byte 12 (RFC 791).
	add(load, networkHeader+12)
	for _, l := range limits {
		if a := l.client; a.Is4() {
			ip := a.As4()
			add(jumpIfEqual, binary.BigEndian.Uint32(ip[:]), 0, 2)
			match(l.passed)
		}
	}
	add(unix.BPF_RET|unix.BPF_K, keepAll)

	// IPv6: the first 64 bits of the source, which is at byte 8 (RFC 8200).
	program[other].K = uint32(len(program) - other - 1)
	for _, l := range limits {
		if a := l.client; a.Is6() {
			ip := a.As16()
			add(load, networkHeader+8)
			add(jumpIfEqual, binary.BigEndian.Uint32(ip[:]), 0, 4)
			add(load, networkHeader+12)
			add(jumpIfEqual, binary.BigEndian.Uint32(ip[4:]), 0, 2)
			match(l.passed)
		}
	}
	add(unix.BPF_RET|unix.BPF_K, keepAll)

	for _, m := range matches {
		program[m].K = uint32(len(program) - m - 1)
	}
	add(unix.BPF_MISC|unix.BPF_TAX, 0)
	add(load, randomNumber)
	add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_X, 0, 1, 0)
	add(unix.BPF_RET|unix.BPF_K, keepAll)
	add(unix.BPF_RET|unix.BPF_K, 0)
	return program
}
