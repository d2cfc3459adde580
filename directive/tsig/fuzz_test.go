package tsig

import (
	"testing"

	"github.com/seamark/seamark/wire"
)

// A file of keys is read without a panic, and each key of it is found by its own name.
func FuzzKeyFile(f *testing.F) {
	for _, text := range []string{
		"key \"a.example.\" {\n algorithm hmac-sha256;\n secret \"c2VjcmV0\";\n};\n", "key a { secret c2VjcmV0; };",
		"# comment\n/* x */ key b. { algorithm \"hmac-sha512\"; secret \"c2VjcmV0\"; };", "key a {", "key a { secret \"",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys(text)
		if err != nil {
			return
		}
		for name, key := range keys {
			if key == nil || key.Name != name || wire.Lower(string(name)) != name {
				t.Errorf("%q: got key %v by the name %v", text, key, name)
			}
		}
	})
}
