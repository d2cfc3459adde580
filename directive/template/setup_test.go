package template

import "testing"

func TestSetupErrors(t *testing.T) {
	for directive, want := range map[string]string{
		"template":       "Corefile:2: template: want at least 2 arguments, got 0",
		"template IN":    "Corefile:2: template: want at least 2 arguments, got 1",
		"template INN A": `Corefile:2: template: want a class, like IN or ANY, got "INN"`,
		"template A IN":  "Corefile:2: template: want a class, like IN or ANY, got \"A\"\nCorefile:2: template: want a type, like A, TYPE65280 or ANY, got \"IN\"",
		"template IN A a..b 10.0.0.0/33": "Corefile:2: template: not a zone: \"a..b\": empty label\n" +
			`Corefile:2: template: "10.0.0.0/33" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
		"match":                   "Corefile:3: template: match: got no arguments, usage: match REGEX...",
		"match ( [":               "Corefile:3: template: match: error parsing regexp: missing closing ): `(`\nCorefile:3: template: match: error parsing regexp: missing closing ]: `[`",
		"expr":                    "Corefile:3: template: expr: got no arguments, usage: expr EXPRESSION...",
		"expr type()":             "Corefile:3: template: expr: want true or false, got string, in type()",
		"var a":                   "Corefile:3: template: var: got 1 argument, usage: var NAME EXPRESSION...",
		"var a-b 1":               `Corefile:3: template: var: want a name of letters, digits and _, got "a-b"`,
		"var first 1":             "Corefile:3: template: var: the name first has a meaning in expressions: choose another",
		"var true 1":              "Corefile:3: template: var: the name true has a meaning in expressions: choose another",
		"var type 1":              "Corefile:3: template: var: the name type has a meaning in expressions: choose another",
		"var incidr 1":            "Corefile:3: template: var: the name incidr has a meaning in expressions: choose another",
		"var a nome()":            "Corefile:3: template: var: unknown name nome, at character 1 of nome()",
		"answer":                  "Corefile:3: template: answer: got no arguments, usage: answer RR...",
		"additional":              "Corefile:3: template: additional: got no arguments, usage: additional RR...",
		"authority":               "Corefile:3: template: authority: got no arguments, usage: authority RR...",
		"rcode":                   "Corefile:3: template: rcode: got no arguments, usage: rcode CODE",
		"rcode NXDOMAIN SERVFAIL": "Corefile:3: template: rcode: got 2 arguments, usage: rcode CODE",
		"rcode NX":                `Corefile:3: template: rcode: want a response code, like NXDOMAIN or REFUSED, got "NX"`,
		"rcode BADNESS":           `Corefile:3: template: rcode: want a response code, like NXDOMAIN or REFUSED, got "BADNESS"`,
		"ederror":                 "Corefile:3: template: ederror: got no arguments, usage: ederror CODE [REASON]",
		"ederror 1 two three":     "Corefile:3: template: ederror: got 3 arguments, usage: ederror CODE [REASON]",
		"ederror 65536":           `Corefile:3: template: ederror: want 0..65535, got "65536"`,
		"ederror Blocked":         `Corefile:3: template: ederror: want 0..65535, got "Blocked"`,
		"fallthrough a..b":        `Corefile:3: template: fallthrough: not a zone: "a..b": empty label`,
		"answers x":               `Corefile:3: template: unknown option "answers"; did you mean "answer"?`,
		"rcode NXDOMAIN {\n}":     "Corefile:3: template: rcode: takes no braces",

		// Constant records, and records that are constant after {{ .Name }}, are
		// parsed during setup.
		`answer "example.org. 60 IN A 192.0.2.300"`: `Corefile:3: template: answer: "example.org. 60 IN A 192.0.2.300": bad A A: "192.0.2.300"`,
		`answer "{{ .Name }} 60 IN A 192.0.2.300"`:  `Corefile:3: template: answer: "{{ .Name }} 60 IN A 192.0.2.300": bad A A: "192.0.2.300"`,
		`additional "{{.Name}} 60 IN AA 192.0.2.1"`: `Corefile:3: template: additional: "{{.Name}} 60 IN AA 192.0.2.1": unknown RR type: "AA"`,
		`authority ""`:                                   `Corefile:3: template: authority: "": want a record, got nothing`,
		`answer "$INCLUDE /etc/passwd"`:                  `Corefile:3: template: answer: "$INCLUDE /etc/passwd": want a record, got a directive`,
		"answer \"a. A 192.0.2.1\nb. A 192.0.2.1\"":      "Corefile:3: template: answer: \"a. A 192.0.2.1\\nb. A 192.0.2.1\": want one record, got more: b.\t3600\tIN\tA\t192.0.2.1",
		`answer "a. A 192.0.2.300" "a. AAAA 192.0.2.30"`: "Corefile:3: template: answer: \"a. A 192.0.2.300\": bad A A: \"192.0.2.300\"\nCorefile:3: template: answer: \"a. AAAA 192.0.2.30\": bad AAAA AAAA: \"192.0.2.30\"",

		// The actions of other records are checked during setup.
		`answer "{{ .Name"`:                 `Corefile:3: template: answer: "{{ .Name": RR:1: unclosed action`,
		`answer "{{ parseUint .Name }}"`:    `Corefile:3: template: answer: "{{ parseUint .Name }}": RR:1: function "parseUint" not defined`,
		`answer "{{ .Nmae }} A 192.0.2.1"`:  `Corefile:3: template: answer: "{{ .Nmae }} A 192.0.2.1": unknown field .Nmae; want one of .Class, .Group, .Match, .Message, .Meta, .Name, .Question, .Regex, .Remote, .Type, .Var, .Zone`,
		`answer "{{ .q }} A 192.0.2.1"`:     `Corefile:3: template: answer: "{{ .q }} A 192.0.2.1": unknown field .q; want one of .Class, .Group, .Match, .Message, .Meta, .Name, .Question, .Regex, .Remote, .Type, .Var, .Zone`,
		`answer "{{ .Group.a }}"`:           `Corefile:3: template: answer: "{{ .Group.a }}": no regular expression has a group a`,
		`answer "{{ index .Group \"1\" }}"`: `Corefile:3: template: answer: "{{ index .Group \"1\" }}": no regular expression has a group 1`,
		`answer "{{ index .Match 1 }}"`:     `Corefile:3: template: answer: "{{ index .Match 1 }}": no regular expression has a group 1`,
		`answer "{{ .Var.a }}"`:             `Corefile:3: template: answer: "{{ .Var.a }}": unknown var a`,
		`answer "{{ .Message.ID }}"`:        `Corefile:3: template: answer: "{{ .Message.ID }}": unknown field .Message.ID`,
		`answer "{{ .Question.Type }}"`:     `Corefile:3: template: answer: "{{ .Question.Type }}": unknown field .Question.Type`,
		`answer "{{ if (eq .A .Type) }}{{ else }}{{ .B }}{{ end }}{{ range .Match }}{{ .C }}{{ $.Group.c }}{{ else }}{{ .D }}{{ end }}"`: "" +
			lines(`Corefile:3: template: answer: "{{ if (eq .A .Type) }}{{ else }}{{ .B }}{{ end }}{{ range .Match }}{{ .C }}{{ $.Group.c }}{{ else }}{{ .D }}{{ end }}": `,
				"unknown field .A; want one of .Class, .Group, .Match, .Message, .Meta, .Name, .Question, .Regex, .Remote, .Type, .Var, .Zone",
				"unknown field .B; want one of .Class, .Group, .Match, .Message, .Meta, .Name, .Question, .Regex, .Remote, .Type, .Var, .Zone",
				"no regular expression has a group c",
				"unknown field .D; want one of .Class, .Group, .Match, .Message, .Meta, .Name, .Question, .Regex, .Remote, .Type, .Var, .Zone"),
	} {
		text := ".:53 {\n" + directive + "\n}"
		if directive[:min(8, len(directive))] != "template" {
			text = ".:53 {\ntemplate IN A {\n" + directive + "\n}\n}"
		}
		if _, err := plan(text); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", directive, err, want)
		}
	}
}

// lines returns a line for each error, with the prefix at.
func lines(at string, errs ...string) (text string) {
	for i, err := range errs {
		if i > 0 {
			text += "\n"
		}
		text += at + err
	}
	return text
}

func TestSetupAccepted(t *testing.T) {
	for _, directive := range []string{
		"template in a",
		"template ANY ANY . {\nrcode refused\nupstream 192.0.2.1\nederror 0\n}",
		"template CLASS3 TYPE65280 10.0.0.0/8 example.org {\nrcode 3\nederror 15 \"some text\"\nfallthrough example.org 10.in-addr.arpa\n}",
		"template IN A {\nanswer \"a 60 IN A 192.0.2.1\" \"a IN A 192.0.2.1\" \"a A 192.0.2.1\" \"  a 60 A 192.0.2.1 ; why\"\n}",
		"template IN A {\nmatch ^(?P<a>x)(y)$ b\nmatch c\nanswer \"{{ index .Match 2 }}{{ .Group.a }}{{ index .Group `1` }}{{ with .Zone }}{{ .x }}{{ end }}\"\n}",
	} {
		if _, err := plan(".:53 {\n" + directive + "\n}"); err != nil {
			t.Errorf("%s: got error %v, want none", directive, err)
		}
	}
}
