package etcd

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// A valid value is the same message after packing and unpacking, with the fields of the
// JSON object.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, ``, `[]`, `{"host":"10.0.0.1","port":80,"priority":10,"weight":100,"ttl":30}`, `{"host":"::ffff:10.0.0.1"}`, `{"host":"fe80::1%eth0"}`,
		`{"HOST":"www.Example.org.","text":"a\u0000b","mail":true,"targetstrip":-1,"group":"g"}`, `{"host":"a..b"}`, `{"host":"."}`, `{"host":"10.0.0.256"}`,
		`{"port":-1}`, `{"port":1e2}`, `{"ttl":4294967295,"weight":2147483647,"priority":65535}`, `{"host":"http://10.0.0.1"}`, `{"host":"a b"}`, `{"host":"\\065.b"}`,
		`{"ttl":4294967295,"@":21474E3647,"priority":65535}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := parse(value)
		if err != nil {
			return
		}
		packed := m.pack(nil)
		var got message
		if rest := got.unpack(string(packed) + "behind"); rest != "behind" {
			t.Fatalf("unpack: got the rest %q, want none", rest)
		}
		if m.weight == defaultWeight {
			m.weight = 0
		}
		if got != m {
			t.Fatalf("packed and unpacked: got %+v, want %+v", got, m)
		}
		// A number in an unknown field may be one that no Go type holds.
		var v map[string]json.RawMessage
		if err := json.Unmarshal(value, &v); err != nil {
			t.Fatalf("parse(%q): got a message, want the error %v", value, err)
		}
		var host string
		if len(v) == 1 && json.Unmarshal(v["host"], &host) == nil {
			ip, err := netip.ParseAddr(host)
			switch {
			case err == nil && m.addr != ip.Unmap(), err != nil && m.addr.IsValid(), host != "" && !m.hasHost():
				t.Fatalf("host %q: got %+v, want the address or name", host, m)
			case m.name != "" && (strings.ContainsAny(host, ": /") || len(m.name) > 255):
				t.Fatalf("host %q: got a name, want an error", host)
			}
		}
	})
}

// keyOf and pathOf are inverse. The path of a name is the path of its key.
func FuzzPath(f *testing.F) {
	for _, key := range []string{"local/skydns/east", "a//b/", "", "a", "\x00", strings.Repeat("a", 64), strings.Repeat("a/", 127) + "b"} {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		path, ok := pathOf("/skydns/", append([]byte("/skydns/"), key...))
		if !ok {
			return
		}
		if back := keyOf("/skydns/", []byte(path)); back != "/skydns/"+string(key) {
			t.Fatalf("keyOf(pathOf(%q)): got %q, want the same key", key, back)
		}
		for strip := range 4 {
			name := appendName(nil, path, strip)
			if len(name) > 255 {
				t.Fatalf("name of key %q: got %d bytes, want at most 255", key, len(name))
			}
			again, ok := appendPath(nil, name)
			if parts := bytes.Split(bytes.TrimSuffix([]byte(path), []byte{0}), []byte{0}); strip == 0 && !bytes.Contains(key, []byte("//")) && key[0] != '/' && key[len(key)-1] != '/' &&
				(!ok || string(again) != path || countLabels(path) != len(parts)) {
				t.Fatalf("path of %q, the name of path %q: got %q", name, path, again)
			}
		}
	})
}
