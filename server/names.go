package server

import (
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// texts lists the directives whose arguments are texts, expressions or files rather than names.
const texts = "chaos debug dnstap errors geoip import log nsid on prometheus root tls trace view whoami"

// warnNames warns of the names of a block that are not ASCII: clients send them in another form,
// which does not match (RFC 5891 §4.4).
func warnNames(b *config.Block) {
	for _, k := range b.Source.Keys {
		warnName(b, k, "")
	}
	for _, d := range b.Source.Directives {
		if !slices.Contains(strings.Fields(texts), d.Text) {
			warnArguments(b, d, d.Text)
		}
	}
}

func warnArguments(b *config.Block, d corefile.Directive, path string) {
	for i, a := range d.Args {
		// The data of a TXT record are text.
		if i > 0 && path == "records" && slices.ContainsFunc(d.Args[:i], func(t corefile.Token) bool {
			return strings.EqualFold(t.Text, "TXT")
		}) {
			break
		}
		warnName(b, a, path)
	}
	for _, o := range d.Body {
		warnName(b, o.Token, path)
		warnArguments(b, o, path)
	}
}

func warnName(b *config.Block, t corefile.Token, path string) {
	if strings.Contains(t.Text, " ") || strings.HasPrefix(t.Text, "/") {
		return
	}
	encoded := config.ASCIIForm(t.Text)
	if encoded != t.Text {
		b.Warn(t.Errorf(path, "%s is not ASCII: clients ask for %s", t.Text, encoded))
	}
}
