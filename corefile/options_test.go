package corefile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"ttl 30", ""},
		{"ttl 30\nttl 40", ""},
		{"ttl x", `Corefile:3: kubernetes: ttl: want 0..3600, got "x"`},
		{"ttl 3601", `Corefile:3: kubernetes: ttl: want 0..3600, got "3601"`},
		{"ttl", "Corefile:3: kubernetes: ttl: got no arguments, usage: ttl SECONDS"},
		{"ttl 1 2", "Corefile:3: kubernetes: ttl: got 2 arguments, usage: ttl SECONDS"},
		{"ttl 1 {\n x\n}", "Corefile:3: kubernetes: ttl: takes no braces"},
		{"tll 5", `Corefile:3: kubernetes: unknown option "tll"; did you mean "ttl"?`},
		{"zzz", `Corefile:3: kubernetes: unknown option "zzz"`},
		{"noendpoints", ""},
		{"noendpoints 1", "Corefile:3: kubernetes: noendpoints: want no argument, got 1"},
		{"noendpoints\nnoendpoints", "Corefile:4: kubernetes: noendpoints: already given on line 3"},
		{"pods verified", ""},
		{"pods verifed", `Corefile:3: kubernetes: pods: want disabled or insecure or verified, got "verifed"; did you mean "verified"?`},
		{"wait 5s", ""},
		{"wait 5", `Corefile:3: kubernetes: wait: want a duration of 0s..1h, got "5"`},
		{"wait 2h", `Corefile:3: kubernetes: wait: want a duration of 0s..1h, got "2h"`},
		{"share 0.5", ""},
		{"share NaN", `Corefile:3: kubernetes: share: want 0..1, got "NaN"`},
		{"name \"\"", `Corefile:3: kubernetes: name: want a value, got ""`},
		{"kubeconfig", "Corefile:3: kubernetes: kubeconfig: got no arguments, usage: kubeconfig FILE [CONTEXT]"},
		{"namespaces", "Corefile:3: kubernetes: namespaces: got no arguments, usage: namespaces NAMESPACE..."},
		{"tls", "Corefile:3: kubernetes: tls: got no arguments, usage: tls CERT KEY [CA]"},
		{"tls a", "Corefile:3: kubernetes: tls: got 1 argument, usage: tls CERT KEY [CA]"},
		{"upstream", "Corefile:3: kubernetes: upstream: removed in CoreDNS 1.7: delete this line"},
		{"upstrem", `Corefile:3: kubernetes: unknown option "upstrem"`},
		{"ttl {$SEAMARK_NONE}", `Corefile:3: kubernetes: ttl: want 0..3600, got ""; environment variable SEAMARK_NONE is not set`},
		{"ttl {$SEAMARK_NONE} {%SEAMARK_TOO%}{$HOME}{$SEAMARK_THREE}", `Corefile:3: kubernetes: ttl: got 2 arguments, usage: ttl SECONDS; environment variables SEAMARK_NONE, SEAMARK_TOO, SEAMARK_THREE are not set`},
		{"few 1 2 3", "Corefile:3: kubernetes: few: got 3 arguments, usage: few [A [B]]"},
		{"ttl x\nfoo\npods", "Corefile:3: kubernetes: ttl: want 0..3600, got \"x\"\n" +
			"Corefile:4: kubernetes: unknown option \"foo\"\n" +
			"Corefile:5: kubernetes: pods: got no arguments, usage: pods disabled|insecure|verified"},
	} {
		servers, err := Parse("Corefile", []byte(". {\n kubernetes {\n"+c.body+"\n}\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var n int
		var f float64
		var b bool
		var s string
		var d time.Duration
		nothing := func(Directive) error { return nil }
		err = servers[0].Directives[0].Options(
			Option{Usage: "ttl SECONDS", Set: Int(&n, 0, 3600)},
			Option{Usage: "noendpoints", Once: true, Set: Flag(&b)},
			Option{Usage: "pods disabled|insecure|verified", Set: OneOf(&s, "disabled", "insecure", "verified")},
			Option{Usage: "wait DURATION", Set: Duration(&d, 0, time.Hour)},
			Option{Usage: "share N", Set: Float(&f, 0, 1)},
			Option{Usage: "name NAME", Set: String(&s)},
			Option{Usage: "kubeconfig FILE [CONTEXT]", Set: nothing},
			Option{Usage: "namespaces NAMESPACE...", Set: nothing},
			Option{Usage: "few [A [B]]", Set: nothing},
			Option{Usage: "tls CERT KEY [CA]", Set: nothing},
			Option{Usage: "upstream", Removed: "removed in CoreDNS 1.7"},
		)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.body, got, c.want)
		}
		switch {
		case strings.HasPrefix(c.body, "ttl 30\nttl") && n != 40:
			t.Errorf("%s: ttl: got %d, want the last value", c.body, n)
		case c.body == "noendpoints" && !b, c.body == "pods verified" && s != "verified",
			c.body == "wait 5s" && d != 5*time.Second, c.body == "share 0.5" && f != 0.5:
			t.Errorf("%s: got values that were not set, want all set", c.body)
		}
	}
}

// A size is a number of bytes, or has a unit of 1,024.
func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"4096": 4096, "64KB": 64 << 10, "64kb": 64 << 10, "3MB": 3 << 20, "1GB": 1 << 30, "3Mi": 3 << 20, "1gi": 1 << 30, "8Ki": 8 << 10,
		"": 0, "x": 0, "-1": 0, "MB": 0, "1.5MB": 0, "4095": 0, "3KB": 0, "2GB": 0, "1048577KB": 0, "99999999999999999GB": 0, "1TB": 0, "1 MB": 0, "1B": 0, "0": 0, "1MBKB": 0, "1KIKB": 0, "2MiMi": 0, "KB": 0,
	} {
		d := Directive{Token: Token{Text: "memory", File: "Corefile", Line: 2}, Path: "cache: memory", Args: []Token{{Text: text}}}
		var got int64
		err := Size(&got, 4096, 1<<30)(d)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
		if err != nil && err.Error() != fmt.Sprintf("Corefile:2: cache: memory: want a size of 4KB..1GB, such as 64MB, got %q", text) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestNoOptions(t *testing.T) {
	d := Directive{Token: Token{Text: "whoami", File: "Corefile", Line: 2}, Path: "whoami", Body: []Directive{{Token: Token{Text: "x", File: "Corefile", Line: 3}}}}
	if err := d.Options(); err == nil || err.Error() != `Corefile:3: whoami: takes no options, got "x"` {
		t.Error(err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"bind", "errors", "log", "health", "ready", "kubernetes", "whoami", "on", "forward", "tls", "ttl"}
	for word, want := range map[string]string{
		"kubernets": "kubernetes", "kube": "kubernetes", "error": "errors", "Errors": "errors", "reday": "ready",
		"lgo": "log", "logs": "log", "healthz": "health", "who": "whoami", "zzz": "", "a": "", "": "", "no": "on",
		"forwarding": "forward", "x": "", "tll": "ttl", "tsl": "tls",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestEach(t *testing.T) {
	d := Directive{Token: Token{Text: "tls", File: "Corefile", Line: 3}, Path: "etcd: tls"}
	cause := errors.New("tls: no key")
	err := d.Each(errors.Join(cause, nil, errors.New("no endpoint")))
	want := "Corefile:3: etcd: tls: no key\nCorefile:3: etcd: tls: no endpoint"
	if err == nil || err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("Each: got\n%v\nwant, with the causes,\n%s", err, want)
	}
	if err := d.Each(nil); err != nil {
		t.Errorf("Each(nil): got %v, want nil", err)
	}
}

func TestSorted(t *testing.T) {
	at := func(line int) error { return Token{File: "Corefile", Line: line}.Errorf("", "wrong") }
	err := Sorted(errors.Join(at(9), errors.New("elsewhere"), errors.Join(at(2), nil)), nil, at(3), at(2))
	want := "Corefile:2: wrong\nCorefile:3: wrong\nCorefile:9: wrong\nelsewhere"
	if err == nil || err.Error() != want {
		t.Errorf("Sorted: got\n%v\nwant\n%s", err, want)
	}
	if Sorted(nil, errors.Join()) != nil {
		t.Error("Sorted without errors: got an error, want nil")
	}
	if err := at(1); errors.Is(err, fs.ErrNotExist) {
		t.Error("Errorf without %w: got a cause, want none")
	}
	if err := (Token{File: "f", Line: 1}).Errorf("a: b", "reading: %w", fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) || err.Error() != "f:1: a: b: reading: file does not exist" {
		t.Error(err)
	}
}

func TestOptionArity(t *testing.T) {
	for usage, want := range map[string][2]int{
		"noendpoints":               {0, 0},
		"ttl SECONDS":               {1, 1},
		"tls CERT KEY [CA]":         {2, 3},
		"delay [AMOUNT [DURATION]]": {0, 2},
		"consolidate DURATION REGEXP [LEVEL] [show_first]": {2, 4},
		"serve_stale [DURATION] [verify [TIMEOUT [TTL]]]":  {0, 4},
		"namespaces NAMESPACE...":                          {1, -1},
		"fallthrough [ZONES...]":                           {0, -1},
		"allow [type TYPES...] [net SOURCES...]":           {0, -1},
		"resolver IP[:PORT]...":                            {1, -1},
		"source IP[:PORT] NAME":                            {2, 2},
	} {
		if least, most := (Option{Usage: usage}).arity(); least != want[0] || most != want[1] {
			t.Errorf("arity of %q = %d, %d; want %d, %d", usage, least, most, want[0], want[1])
		}
	}
}
