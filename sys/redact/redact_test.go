package redact

import "testing"

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"localhost":                      "localhost",
		"10.0.0.1:2379":                  "10.0.0.1:2379",
		"https://[2001:db8::1]:6443/api": "https://[2001:db8::1]:6443/api",
		"http://user:secret@host:9/path": "http://(hidden)@host:9/path",
		"user:se@cret@host:2379":         "(hidden)@host:2379",
		"user:se://cret@host:2379":       "(hidden)@host:2379",
		"http://user:se/cret@host":       "http://(hidden)@host", // invalid
		"http://user:se?cret@host":       "http://(hidden)",      // invalid
		"http://host/path?token=secret":  "http://host/path?(hidden)",
		"host:9?token=secret@x":          "(hidden)",
		"http://u:secret@h/?a=b&c=d#e":   "http://(hidden)@h/?(hidden)",
		"http://user:sec ret%@host":      "http://(hidden)@host", // invalid
	} {
		if got := URL(text); got != want {
			t.Errorf("URL(%q): got %q, want %q", text, got, want)
		}
	}
}
