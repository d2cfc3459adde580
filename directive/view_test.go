package directive

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestView(t *testing.T) {
	tests := []struct {
		view string
		want string // y or n for each query of the loop below
	}{
		{"view v {\nexpr type() == 'A'\n}", "yn"},
		{"view v {\nexpr type() == 'A'\nexpr client_ip() == '10.0.0.1'\n}", "yn"},
		{"view v {\nexpr type() == 'A'\nexpr client_ip() == '10.0.0.2'\n}", "nn"},
		{"view v {\nexpr name() matches '^name\\\\.example'\n}", "yy"},
		{"view v {\nexpr name() matches `^name\\.example\\.org\\.$`\n}", "yy"},
		{"view v {\nexpr \"incidr(client_ip(), '10.0.0.0/8')\"\n}", "yy"},
		// Words are joined with single spaces, in strings too, as in CoreDNS.
		{"view v {\nexpr 'a   b' == 'a b'\n}", "yy"},
		{"view v {\nexpr metadata('view/name') == 'v'\n}", "nn"},
		{"metadata\nview v {\nexpr metadata('view/name') == 'v'\n}", "yy"},
		{"metadata example.com\nview v {\nexpr metadata('view/name') == 'v'\n}", "nn"},
		{"metadata\nview v {\nexpr incidr(client_ip(), metadata('view/name'))\n}", "nn"},
		{"view v", "yy"},
	}
	for _, test := range tests {
		r := run(t, ".:53 {\nwhoami\n"+test.view+"\n}")
		got := ""
		for _, qtype := range []wire.Type{wire.TypeA, wire.TypeTXT} {
			r.exchange(packet(t, "Name.example.org", qtype), dns.UDP, client)
			if r.query.RCode == wire.NoError {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != test.want {
			t.Errorf("%s\ngot %s, want %s", test.view, got, test.want)
		}
		failed := r.metrics("seamark_view_failures_total")
		if want := map[bool]string{false: `{view="v"} 0`, true: `{view="v"} 2`}[strings.Contains(test.view, "client_ip(), metadata")]; !strings.Contains(failed, want) {
			t.Errorf("%s\ngot metric %q, want %s", test.view, failed, want)
		}
	}
}

// The first failed evaluation in a minute is logged.
func TestViewFailureLog(t *testing.T) {
	r := run(t, ".:53 {\nwhoami\nmetadata\nview v {\nexpr incidr(client_ip(), metadata('view/name'))\n}\n}")
	log := &syncBuffer{}
	config.Find[*View](r.block)[0].log = slog.New(slog.NewTextHandler(log, nil))
	for range 2 {
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	}
	const want = `msg="view: Evaluating expression failed, query does not match" view=v qname=example.org. client=` + client + ` error=`
	if got := log.String(); strings.Count(got, want) != 1 {
		t.Errorf("two queries in one minute: got %q, want one line with %q", got, want)
	}
}

func TestViewErrors(t *testing.T) {
	for corefile, want := range map[string]string{
		"view":                     "Corefile:2: view: want 1 argument, got 0",
		`view ""`:                  `Corefile:2: view: want a value, got ""`,
		"view a b":                 "Corefile:2: view: want 1 argument, got 2",
		"view a {\nexpr\n}":        "Corefile:3: view: expr: got no arguments, usage: expr EXPRESSION...",
		"view a {\nexp true\n}":    `Corefile:3: view: unknown option "exp"; did you mean "expr"?`,
		"view a {\nexpr type()\n}": "Corefile:3: view: expr: want true or false, got string, in type()",
		"view a {\nexpr typ() ==  'A'\nexpr (\n}": "Corefile:3: view: expr: unknown name typ, at character 1 of typ() == 'A'\nCorefile:4: view: expr: unexpected token EOF, at character 1 of (",
		"view a {\nexpr do() {\n}\n}":             "Corefile:3: view: expr: takes no braces",
		"view a\nview b":                          "Corefile:3: view: already given at Corefile:2, and can be given once in a server block",
	} {
		wantErrors(t, ".:53 {\n"+corefile+"\n}", want)
	}
}

func TestMetadataErrors(t *testing.T) {
	for corefile, want := range map[string]string{
		"metadata a..b":           `Corefile:2: metadata: not a zone: "a..b": empty label`,
		"metadata {\nexample\n}":  `Corefile:3: metadata: takes no options, got "example"`,
		"metadata a\nmetadata":    "Corefile:3: metadata: already given at Corefile:2, and can be given once in a server block",
		"metadata 10.0.0.0/33 ::": "Corefile:2: metadata: \"10.0.0.0/33\" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8\nCorefile:2: metadata: \"::\" is not a zone: want a name or a CIDR like fd00::/8",
	} {
		wantErrors(t, ".:53 {\n"+corefile+"\n}", want)
	}
}
