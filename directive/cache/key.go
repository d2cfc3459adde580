package cache

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// queryFlags are the header bits of a query that are part of its key.
type queryFlags uint8

const (
	flagRD queryFlags = 1 << iota
	flagCD
	flagDO
	keyFlags = flagRD | flagCD | flagDO
)

func flagsOf(q *dns.Query) (flags queryFlags) {
	if q.Flags&wire.FlagRD != 0 {
		flags = flagRD
	}
	if q.Flags&wire.FlagCD != 0 {
		flags |= flagCD
	}
	if q.DO {
		flags |= flagDO
	}
	return flags
}

// A key identifies a query within a scope.
type key struct {
	name    []byte // wire form, lower case
	options []byte // the EDNS options that are sent to upstreams, and the variant unless it is zero
	t       wire.Type
	class   wire.Class
	flags   queryFlags
	step    uint32 // distance to the handler below the Cache that answers
	hash    uint64
}

// appendGeneration appends the key of the generations of the entries.
func (k *key) appendGeneration(buf []byte) []byte { return binary.BigEndian.AppendUint64(buf, k.hash) }

// generation returns it as a text.
func (k *key) generation() string { return string(k.appendGeneration(nil)) }

// maxKeyOptions is the maximum length of a key's options. A client subnet takes
// at most 24 bytes.
const maxKeyOptions = 64 + variantSize

const variantSize = 8

// A keyBuffer is the memory of a key's name and options.
type keyBuffer struct {
	name    [wire.MaxName]byte
	options [maxKeyOptions]byte
}

// set makes k the key of q as answered by the handler step positions below the
// Cache. It returns false if q has too many options. k refers to buf.
func (k *key) set(st *Store, s *scope, q *dns.Query, flags queryFlags, step int, buf *keyBuffer) bool {
	if len(q.Options) > maxKeyOptions-variantSize {
		return false
	}
	k.name, k.options = buf.name[:copy(buf.name[:], q.Name())], nil
	k.t, k.class, k.flags, k.step = q.Type, q.Class, flags, uint32(step)
	if len(q.Options) > 0 {
		k.options = buf.options[:copy(buf.options[:], q.Options)]
	}
	if q.Variant != 0 {
		k.options = binary.BigEndian.AppendUint64(buf.options[:len(k.options)], q.Variant)
	}
	k.setHash(st, s)
	return true
}

func (k *key) setHash(st *Store, s *scope) {
	const odd = 0x9E3779B97F4A7C15
	k.hash = maphash.Bytes(st.seed, k.name) ^ s.salt
	k.hash += (uint64(k.t)<<32 | uint64(k.class)<<16 | uint64(k.flags)<<8 | uint64(k.step)) * odd
	if len(k.options) > 0 {
		k.hash = bits.RotateLeft64(k.hash, 7) ^ maphash.Bytes(st.seed, k.options)
	}
	k.hash ^= k.hash >> 32
}

func (k *key) equal(o *key) bool {
	return k.t == o.t && k.class == o.class && k.flags == o.flags && k.step == o.step &&
		bytes.Equal(k.name, o.name) && bytes.Equal(k.options, o.options)
}

// clone returns a copy of k that owns its memory.
func (k *key) clone() key {
	c := *k
	both := slices.Concat(k.name, k.options)
	c.name, c.options = both[:len(k.name):len(k.name)], both[len(k.name):]
	return c
}
