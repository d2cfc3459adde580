package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Name is a domain name in wire form (length bytes and labels, the root label
// last), in lower case, not compressed. As a string it can be a map key and never
// changes.
type Name string

// Root is the name of the root zone.
const Root Name = "\x00"

// ParseName parses a name in presentation form (RFC 1035 §5.1: with \. and \DDD
// escapes; the final dot is optional) and converts it to lower case.
func ParseName(s string) (Name, error) {
	switch s {
	case "":
		return "", errors.New("empty name")
	case ".":
		return Root, nil
	}

	var name, label []byte
	endLabel := func() error {
		switch n := len(label); {
		case n == 0:
			return fmt.Errorf("%q: empty label", s)
		case n > MaxLabel:
			return fmt.Errorf("%q: label of %d bytes, at most %d are allowed", s, n, MaxLabel)
		}
		name, label = AppendLabel(name, string(label)), label[:0]
		return nil
	}

	for rest := s; rest != ""; {
		if rest[0] == '.' {
			if err := endLabel(); err != nil {
				return "", err
			}
			rest = rest[1:]
			continue
		}
		c, size, err := unescape(rest)
		if err != nil {
			return "", fmt.Errorf("%q: %w", s, err)
		}
		label, rest = append(label, lower(c)), rest[size:]
	}
	if len(label) > 0 {
		if err := endLabel(); err != nil {
			return "", err
		}
	}

	if name = append(name, 0); len(name) > MaxName {
		return "", fmt.Errorf("%q: name of %d bytes, at most %d are allowed", s, len(name), MaxName)
	}
	return Name(name), nil
}

// unescape returns the first byte of a name in presentation form, and the number of
// characters that stand for it.
func unescape(s string) (c byte, size int, err error) {
	switch {
	case s[0] != '\\':
		return s[0], 1, nil
	case len(s) > 3 && digits(s[1:4]):
		n, err := strconv.ParseUint(s[1:4], 10, 8)
		if err != nil {
			return 0, 0, fmt.Errorf("\\%s is not a byte", s[1:4])
		}
		return byte(n), 4, nil
	case len(s) == 1:
		return 0, 0, errors.New("ends in a backslash")
	}
	return s[1], 2, nil
}

func digits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// String returns the presentation form with the final dot.
func (n Name) String() string { return string(AppendText(nil, []byte(n))) }

// AppendText appends the presentation form of a name in wire form to buf, with the
// final dot. The letter case is kept.
func AppendText(buf, name []byte) []byte {
	if len(name) <= 1 {
		return append(buf, '.')
	}

	for i := 0; i < len(name) && name[i] != 0; {
		n := int(name[i])
		for _, c := range name[i+1 : min(i+1+n, len(name))] {
			switch {
			case c == '.' || c == '\\' || c == '"' || c == '(' || c == ')' || c == ';' || c == '@' || c == '$':
				buf = append(buf, '\\', c)
			case c <= ' ' || c > '~':
				buf = append(buf, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
			default:
				buf = append(buf, c)
			}
		}

		buf = append(buf, '.')
		i += n + 1
	}
	return buf
}

// Labels returns the number of labels; the root has none.
func (n Name) Labels() int { return Labels(n) }

// Labels returns the number of labels of a name in wire form, or of its first part.
func Labels[N Name | []byte](n N) (count int) {
	for i := 0; i < len(n) && n[i] != 0; i += int(n[i]) + 1 {
		count++
	}
	return count
}

// Within reports whether n is zone or below it.
func (n Name) Within(zone Name) bool { return Within(n, zone) }

// Within reports whether name, in wire form and lower case, is zone or below it.
func Within[N, Z Name | []byte](name N, zone Z) bool {
	for i := 0; i < len(name) && len(name)-i >= len(zone); i += int(name[i]) + 1 {
		if string(name[i:]) == string(zone) {
			return true
		}
	}
	return false
}

// Join returns the name that consists of labels, in wire form without the root, and
// n.
func (n Name) Join(labels string) Name { return Name(labels) + n }

// JoinNames returns names as text, with a separator between them.
func JoinNames(names []Name, separator string) string {
	var texts []string
	for _, n := range names {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, separator)
}

// AppendLabel appends one label to buf. It must have 1 to MaxLabel bytes.
func AppendLabel(buf []byte, label string) []byte {
	return append(append(buf, byte(len(label))), label...)
}

// Lower converts a name in wire form to lower case.
func Lower(name string) Name {
	b := []byte(name)
	for i, c := range b {
		b[i] = lower(c) // length bytes are below 'A'
	}
	return Name(b)
}

// AppendLower appends name, in wire form, to buf in lower case. buf may be name[:0].
func AppendLower(buf, name []byte) []byte {
	for _, c := range name { // length bytes are below 'A'
		buf = append(buf, lower(c))
	}
	return buf
}

// SameName reports whether two names in wire form, or parts of names, are equal, ignoring letter case.
func SameName[A, B ~string | ~[]byte](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	if string(a) == string(b) { // most are equal to the letter
		return true
	}
	for i := range len(a) { // length bytes are below 'A'
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// copyLower copies the first len(to) bytes of from, a name in wire form, to to, in
// lower case. It converts eight bytes at a time; the last eight may overlap the ones
// before.
func copyLower(to, from []byte) {
	n := len(to)
	if n < 8 {
		for i, c := range from[:n] {
			to[i] = lower(c)
		}
		return
	}

	last := lower8(binary.LittleEndian.Uint64(from[n-8:]))
	for rest := to; len(rest) > 8 && len(from) >= 8; rest, from = rest[8:], from[8:] {
		binary.LittleEndian.PutUint64(rest, lower8(binary.LittleEndian.Uint64(from)))
	}
	binary.LittleEndian.PutUint64(to[n-8:], last)
}

// lower8 is lower for eight bytes in any order. It adds to the low seven bits of
// each byte, so that the eighth bit shows whether they are above 'Z', or at least
// 'A'. A byte whose eighth bit is set is not a letter.
func lower8(w uint64) uint64 {
	const each = 0x0101010101010101
	low := w & (0x7F * each)
	past, least := low+(0x7F-'Z')*each, low+(0x80-'A')*each
	return w | (least&^past&^w&(0x80*each))>>2
}

// errName is the error for all malformed names: their bytes come from a client or an
// upstream, and there is nothing more to report.
var errName = errors.New("malformed name")

// ReadName appends the name at msg[off:] to buf, written out and with its letter
// case, and returns the offset after it.
func ReadName(buf, msg []byte, off int) (name []byte, next int, ok bool) {
	name, next, err := expand(buf, msg, off)
	return name, next, err == nil
}

// ReadLower appends the name at msg[off:] to buf, written out and in lower case. It returns nil if the
// name is malformed.
func ReadLower(buf, msg []byte, off int) []byte {
	name, _, ok := ReadName(buf, msg, off)
	if !ok {
		return nil
	}
	for i, c := range name[len(buf):] {
		name[len(buf)+i] = lower(c)
	}
	return name
}

// expand appends the name at msg[off:] to buf, written out, and returns the offset
// after it.
func expand(buf, msg []byte, off int) (out []byte, next int, err error) {
	out, next = buf, -1
	limit := off // pointers must point before this: so it terminates
	for {
		if off >= len(msg) {
			return buf, 0, errName
		}

		n := int(msg[off])
		switch {
		case n == 0:
			if next < 0 {
				next = off + 1
			}
			return append(out, 0), next, nil

		case n <= MaxLabel:
			// One of the 255 bytes is left for the root label.
			if off+1+n > len(msg) || len(out)-len(buf)+1+n >= MaxName {
				return buf, 0, errName
			}
			out = append(out, msg[off:off+1+n]...)
			off += 1 + n

		case n >= 0xC0:
			if off+1 >= len(msg) {
				return buf, 0, errName
			}
			to := (n&0x3F)<<8 | int(msg[off+1])
			if next < 0 {
				next = off + 2
			}
			if to >= limit || to < HeaderLen {
				return buf, 0, errName
			}
			off, limit = to, to

		default: // the two reserved label types
			return buf, 0, errName
		}
	}
}

// skip returns the offset after the name at msg[off:], without following pointers.
func skip(msg []byte, off int) (next int, ok bool) {
	for off < len(msg) {
		n := int(msg[off])
		switch {
		case n == 0:
			return off + 1, true
		case n <= MaxLabel:
			off += 1 + n
		case n >= 0xC0:
			return off + 2, off+2 <= len(msg)
		default:
			return 0, false
		}
	}
	return 0, false
}
