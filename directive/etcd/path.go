package etcd

import (
	"bytes"
	"strings"

	"github.com/seamark/seamark/wire"
)

// maxPath is the length of the longest path: the path of the longest name, without
// the root label.
const maxPath = wire.MaxName - 1

// pathOf returns the path of a key. ok is false if the key belongs to no name.
func pathOf(prefix string, key []byte) (path string, ok bool) {
	if len(key) <= len(prefix) || string(key[:len(prefix)]) != prefix || len(key)-len(prefix) >= maxPath {
		return "", false
	}
	buf := make([]byte, 0, maxPath)
	labelLen := 0
	for _, c := range key[len(prefix):] {
		switch labelLen++; {
		case c == '/':
			c, labelLen = 0, 0
		case c == 0 || labelLen > wire.MaxLabel:
			return "", false
		}
		buf = append(buf, c)
	}
	return string(append(buf, 0)), true
}

// keyOf returns the key of a path.
func keyOf(prefix string, path []byte) string {
	if len(path) == 0 {
		return strings.TrimSuffix(prefix, "/")
	}
	return prefix + strings.ReplaceAll(string(path[:len(path)-1]), "\x00", "/")
}

// appendPath appends the path of a name in wire format and lower case. ok is
// false if a label has a zero byte, since no key has one.
func appendPath(buf, name []byte) (path []byte, ok bool) {
	at := len(buf)
	buf = append(buf, name[:len(name)-1]...) // the path has the same length
	end := len(buf)
	for i := 0; name[i] != 0; {
		label := name[i+1 : i+1+int(name[i])]
		if bytes.IndexByte(label, 0) >= 0 {
			return buf[:at], false
		}
		end -= len(label) + 1
		copy(buf[end:], label)
		buf[end+len(label)] = 0
		i += 1 + len(label)
	}
	return buf, true
}

// appendName appends the name of a path in wire format. It omits the first strip
// labels if the name has more than that, and skips empty parts of the key.
func appendName(buf []byte, path string, strip int) []byte {
	if strip > 0 {
		if labels := countLabels(path); strip < labels {
			for range strip {
				path = path[:strings.LastIndexByte(strings.TrimRight(path, "\x00"), 0)+1]
			}
		}
	}
	for path != "" {
		path = path[:len(path)-1]
		i := strings.LastIndexByte(path, 0) + 1
		if label := path[i:]; label != "" {
			buf = wire.AppendLabel(buf, label)
		}
		path = path[:i]
	}
	return append(buf, 0)
}

// countLabels returns the number of labels of a path's name: of its parts that are
// not empty.
func countLabels(path string) (n int) {
	for i := range len(path) {
		if path[i] == 0 && i > 0 && path[i-1] != 0 {
			n++
		}
	}
	return n
}

// depth returns the number of parts of a path.
func depth(path string) int { return strings.Count(path, "\x00") }

// isWild reports whether a label of a query matches any label of a key.
func isWild(label string) bool { return label == "*" || label == "any" }

// wildAt returns the offset of the first wildcard label of a path, or -1.
func wildAt(path []byte) int {
	for i := 0; i < len(path); {
		end := i + bytes.IndexByte(path[i:], 0)
		if isWild(string(path[i:end])) {
			return i
		}
		i = end + 1
	}
	return -1
}

// matches reports whether the first labels of a path match the labels of pattern.
func matches(path, pattern string) bool {
	for pattern != "" {
		if path == "" {
			return false
		}
		i, j := strings.IndexByte(path, 0), strings.IndexByte(pattern, 0)
		if label := pattern[:j]; !isWild(label) && label != path[:i] {
			return false
		}
		path, pattern = path[i+1:], pattern[j+1:]
	}
	return true
}
