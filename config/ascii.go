package config

import (
	"regexp"

	"golang.org/x/net/idna"
)

// label matches a label that is not ASCII, in a name, a regular expression or a URL.
var label = regexp.MustCompile(`[\pL\pM\pN_-]*[^\x00-\x7F][\pL\pM\pN_-]*`)

// ASCIIForm returns text with its labels in the form that clients send (RFC 5891 §4.4): text itself if
// all are ASCII, or have no such form.
func ASCIIForm(text string) string {
	return label.ReplaceAllStringFunc(text, func(label string) string {
		if ascii, err := idna.Lookup.ToASCII(label); err == nil {
			return ascii
		}
		return label
	})
}

// ASCIIFormOfName is ASCIIForm for a name in wire form. It returns the name as it was written, too;
// both are empty if they are equal.
func ASCIIFormOfName(name []byte) (written, form string) {
	i := 0
	for i < len(name) && name[i] < 0x80 {
		i++
	}
	if i == len(name) {
		return "", ""
	}

	for i := 0; i < len(name) && name[i] != 0; i += int(name[i]) + 1 {
		written += string(name[i+1:i+1+int(name[i])]) + "."
	}
	if form = ASCIIForm(written); form == written {
		return "", ""
	}
	return written, form
}
