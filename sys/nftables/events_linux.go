package nftables

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Changes returns a number that is another one after each transaction of other processes, which may have
// removed elements: for example after nft flush ruleset.
func (k *Kernel) Changes() uint64 { return k.changes.Load() }

// openEvents opens a socket that receives a message at the end of each transaction.
func openEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "events of nftables")

	// The filter first: a transaction of kube-proxy has thousands of other messages.
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyNewGenerations())
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// newGeneration is the type of the message at the end of a transaction.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// onlyNewGenerations is a filter that passes messages of this type alone. The type is in the byte order of
// the machine, and a filter loads it as big-endian.
func onlyNewGenerations() *unix.SockFprog {
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, newGeneration))
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
}

// follow counts the transactions of others until the socket is closed.
func (k *Kernel) follow(changed func()) {
	buf := make([]byte, 4096)
	for {
		n, err := k.events.Read(buf)
		foreign := false
		switch {
		case err == nil:
			messages(buf[:n], func(h unix.NlMsghdr, _ []byte) bool {
				foreign = foreign || h.Type == newGeneration && h.Pid != k.port
				return true
			})
		case errors.Is(err, unix.ENOBUFS): // messages were lost
			foreign = true
		default:
			return
		}

		if foreign {
			k.changes.Add(1)
			if changed != nil {
				changed()
			}
		}
	}
}
