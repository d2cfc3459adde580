package wire

import (
	"strconv"
	"strings"
)

// ParseType parses a type in any letter case: a mnemonic or TYPE123 (RFC 3597).
func ParseType(s string) (Type, bool) {
	s = strings.ToUpper(s)
	if n, ok := strings.CutPrefix(s, "TYPE"); ok {
		t, err := strconv.ParseUint(n, 10, 16)
		return Type(t), err == nil
	}
	for t := range Type(1 << 9) { // all known mnemonics are below
		if s != "" && t.mnemonic() == s {
			return t, true
		}
	}
	return 0, false
}

// ParseClass parses a class in any letter case: a mnemonic or CLASS123 (RFC 3597).
func ParseClass(s string) (Class, bool) {
	s = strings.ToUpper(s)
	if n, ok := strings.CutPrefix(s, "CLASS"); ok {
		c, err := strconv.ParseUint(n, 10, 16)
		return Class(c), err == nil
	}
	for _, c := range [...]Class{ClassIN, ClassCH, ClassHS, ClassANY} {
		if s == c.String() {
			return c, true
		}
	}
	return 0, false
}

// AppendLower appends name, in wire form, to buf in lower case. buf may be name[:0].
func AppendLower(buf, name []byte) []byte {
	for _, c := range name { // length bytes are below 'A'
		buf = append(buf, lower(c))
	}
	return buf
}
