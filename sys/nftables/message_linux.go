package nftables

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A buffer is netlink messages for nftables.
type buffer []byte

// message appends a message whose attributes add appends.
func (b *buffer) message(kind uint16, flags uint16, seq uint32, family uint8, resource uint16, add func(*buffer)) {
	at := len(*b)
	*b = append(*b, 0, 0, 0, 0)
	*b = binary.NativeEndian.AppendUint16(*b, kind)
	*b = binary.NativeEndian.AppendUint16(*b, unix.NLM_F_REQUEST|flags)
	*b = binary.NativeEndian.AppendUint32(*b, seq)
	*b = append(*b, 0, 0, 0, 0, family, unix.NFNETLINK_V0)
	*b = binary.BigEndian.AppendUint16(*b, resource)

	add(b)
	binary.NativeEndian.PutUint32((*b)[at:], uint32(len(*b)-at))
}

// nft appends a message of nftables.
func (b *buffer) nft(kind uint16, flags uint16, seq uint32, family uint8, add func(*buffer)) {
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, seq, family, 0, add)
}

// bound appends the message that begins or ends a transaction.
func (b *buffer) bound(kind uint16, seq uint32) {
	b.message(kind, 0, seq, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, func(*buffer) {})
}

// attribute appends an attribute, with padding.
func (b *buffer) attribute(kind uint16, add func(*buffer)) {
	at := len(*b)
	*b = append(*b, 0, 0)
	*b = binary.NativeEndian.AppendUint16(*b, kind)
	add(b)
	binary.NativeEndian.PutUint16((*b)[at:], uint16(len(*b)-at))
	for len(*b)%unix.NLA_ALIGNTO != 0 {
		*b = append(*b, 0)
	}
}

func (b *buffer) nested(kind uint16, add func(*buffer)) { b.attribute(unix.NLA_F_NESTED|kind, add) }

func (b *buffer) bytes(kind uint16, data []byte) {
	b.attribute(kind, func(b *buffer) { *b = append(*b, data...) })
}

func (b *buffer) text(kind uint16, s string) {
	b.attribute(kind, func(b *buffer) { *b = append(append(*b, s...), 0) })
}

func (b *buffer) uint64(kind uint16, n uint64) {
	b.attribute(kind, func(b *buffer) { *b = binary.BigEndian.AppendUint64(*b, n) })
}

// messages calls each with the header and the rest of every message in data, until it returns false.
func messages(data []byte, each func(h unix.NlMsghdr, rest []byte) bool) {
	for len(data) >= unix.NLMSG_HDRLEN {
		h := unix.NlMsghdr{
			Len: binary.NativeEndian.Uint32(data), Type: binary.NativeEndian.Uint16(data[4:]),
			Flags: binary.NativeEndian.Uint16(data[6:]), Seq: binary.NativeEndian.Uint32(data[8:]),
			Pid: binary.NativeEndian.Uint32(data[12:]),
		}
		if h.Len < unix.NLMSG_HDRLEN || int(h.Len) > len(data) ||
			!each(h, data[unix.NLMSG_HDRLEN:h.Len]) {
			return
		}
		data = data[min(len(data), align(int(h.Len))):]
	}
}

// attributes calls each with every attribute in data.
func attributes(data []byte, each func(kind uint16, value []byte)) {
	for len(data) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(data))
		if n < unix.SizeofNlAttr || n > len(data) {
			return
		}
		each(binary.NativeEndian.Uint16(data[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), data[unix.SizeofNlAttr:n])
		data = data[min(len(data), align(n)):]
	}
}

// align rounds up to the alignment of messages and attributes.
func align(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }
