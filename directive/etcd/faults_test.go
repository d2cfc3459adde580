package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// The log line about an invalid value names the field, and abbreviates long values.
func TestInvalidValueMessages(t *testing.T) {
	long := strings.Repeat("b", 900_000)
	for _, c := range []struct{ key, value, want string }{
		{"a", `["a"]`, "want an object, got array"},
		{"a", `{"host":5}`, "host: want a string, got number"},
		{"a", `{"mail":"yes"}`, "mail: want true or false, got string"},
		{"a", `{"ttl":-1}`, "ttl: want a whole number of 0 or more, got number -1"},
		{"a", `{"weight":1.5}`, "weight: want a whole number, got number 1.5"},
		{"a", `{bad`, "invalid JSON: invalid character"},
		{"a", `{"host":"` + long + `"}`, "host: want an address or a name, got \\\"bbb"},
		{long, `{}`, "no name has this key"},
		{"", `{}`, "it is the path alone"},
	} {
		var log bytes.Buffer
		x := newIndex("/skydns/", slog.New(slog.NewTextHandler(&log, nil)))
		x.put(keyValue{key: []byte("/skydns/" + c.key), value: []byte(c.value)})
		line := log.String()
		if !strings.Contains(line, c.want) || strings.Contains(line, "Go ") || strings.Contains(line, "struct") {
			t.Errorf("%.40s %.40s: got %.400s, want %s", c.key, c.value, line, c.want)
		}
		if len(line) > 1000 {
			t.Errorf("%.40s %.40s: got a line of %d bytes, want a short one", c.key, c.value, len(line))
		}
	}
}
