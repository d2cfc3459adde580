package server

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// Names that are not ASCII are warned about, in keys, arguments, options and regular expressions;
// texts and files are not.
func TestNamesNotASCII(t *testing.T) {
	opts := options()
	for _, name := range []string{"names", "records", "log"} {
		opts.Directives = append(opts.Directives, config.Directive{Name: name, Answers: true,
			Setup: func(*config.Block, []corefile.Directive) error { return nil }})
	}
	plan, err := planOf(`münchen.test {
    names a.test BÜCHER.test (.*)\.köln\.test *.日本.test /etc/größe "zwei wörter" xn--mnchen-3ya.test
    names {
        except ä.test
        10.0.0.1 straße
    }
    records {
        ö.münchen.test A 10.0.0.1
        a.test TXT grüße.test
    }
    log grüße
}`, opts)
	if err != nil {
		t.Fatal(err)
	}

	want := `Corefile:1: münchen.test is not ASCII: clients ask for xn--mnchen-3ya.test
Corefile:2: names: BÜCHER.test is not ASCII: clients ask for xn--bcher-kva.test
Corefile:2: names: (.*)\.köln\.test is not ASCII: clients ask for (.*)\.xn--kln-sna\.test
Corefile:2: names: *.日本.test is not ASCII: clients ask for *.xn--wgv71a.test
Corefile:4: names: ä.test is not ASCII: clients ask for xn--4ca.test
Corefile:5: names: straße is not ASCII: clients ask for xn--strae-oqa
Corefile:8: records: ö.münchen.test is not ASCII: clients ask for xn--nda.xn--mnchen-3ya.test`
	if got := plan.Warnings().Error(); got != want {
		t.Errorf("got warnings\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}
