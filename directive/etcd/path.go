package etcd

import (
	"strings"

	"github.com/seamark/seamark/wire"
)

// maxPath is the length of a path that has a name: as many bytes as the name, but
// for the root label.
const maxPath = wire.MaxName - 1

// pathOf gives a key's path. It says false if no name can have the key, nor a name
// above it be asked for what is there.
func pathOf(prefix string, key []byte) (path string, ok bool) {
	if len(key) <= len(prefix) || string(key[:len(prefix)]) != prefix || len(key)-len(prefix) >= maxPath {
		return "", false
	}
	buf := make([]byte, 0, maxPath)
	label := 0
	for _, c := range key[len(prefix):] {
		switch label++; {
		case c == '/':
			c, label = 0, 0
		case c == 0 || label > wire.MaxLabel:
			return "", false
		}
		buf = append(buf, c)
	}
	return string(append(buf, 0)), true
}

// keyOf is the key of a path.
func keyOf(prefix string, path []byte) string {
	if len(path) == 0 {
		return strings.TrimSuffix(prefix, "/")
	}
	return prefix + strings.ReplaceAll(string(path[:len(path)-1]), "\x00", "/")
}

// appendPath writes the path of a name, in wire form and lower case, behind buf. It
// says false if there is no such key: a label has a zero byte.
func appendPath(buf, name []byte) (path []byte, ok bool) {
	at := len(buf)
	buf = append(buf, name[:len(name)-1]...) // of the same length
	end := len(buf)
	for i := 0; name[i] != 0; {
		label := name[i+1 : i+1+int(name[i])]
		for _, c := range label {
			if c == 0 {
				return buf[:at], false
			}
		}
		end -= len(label) + 1
		copy(buf[end:], label)
		buf[end+len(label)] = 0
		i += 1 + len(label)
	}
	return buf, true
}

// appendName writes the name of a path, in wire form, behind buf, without the first
// strip of its labels unless it has no others. Empty parts of a key are no labels.
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

func countLabels(path string) (n int) {
	for i := range len(path) {
		if path[i] == 0 && i > 0 && path[i-1] != 0 {
			n++
		}
	}
	return n
}

// depth is how many parts a path has.
func depth(path string) int { return strings.Count(path, "\x00") }

// isWild says that a label stands for any.
func isWild(label string) bool { return label == "*" || label == "any" }

// wildAt is where the first label of a path stands that stands for any; -1 if none
// does.
func wildAt(path []byte) int {
	for i := 0; i < len(path); {
		end := i
		for path[end] != 0 {
			end++
		}
		if isWild(string(path[i:end])) {
			return i
		}
		i = end + 1
	}
	return -1
}

// matches says whether a path begins with labels that pattern stands for.
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
