package local_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/dnstest"
)

// start starts the servers of a Corefile, in which OBJECTS is a folder with the objects and
// UPSTREAM the address of a server.
func start(t *testing.T, text string) *local.Server {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"objects.yaml": objects})
	return startIn(t, dir, strings.ReplaceAll(text, "OBJECTS", dir))
}

// writeFiles writes files, by their paths in a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startIn starts the servers of a Corefile, in which DIR is a folder and UPSTREAM the address
// of a server.
func startIn(t *testing.T, dir, text string) *local.Server {
	t.Helper()
	c := corefile.ReadText("Corefile", []byte(strings.NewReplacer("DIR", dir, "UPSTREAM", dnstest.Upstream(t, upstreamRecords)).Replace(text)))
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := local.Start(ctx, c.Servers, server.Options{Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// startAll starts the servers of Corefiles as startIn does, by their names.
func startAll(t *testing.T, dir string, corefiles map[string]string) map[string]*local.Server {
	t.Helper()
	servers := map[string]*local.Server{}
	for name, text := range corefiles {
		servers[name] = startIn(t, dir, text)
	}
	return servers
}

// upstreamRecords are the records of the upstream.
const upstreamRecords = `
. 60 IN SOA ns. admin. 1 60 60 60 60
alias.example.org. 60 IN A 192.0.2.1
www.example.org. 60 IN A 192.0.2.1
www.example.com. 60 IN A 192.0.2.1
none.example.com. 60 IN TXT x
www.example.net. 60 IN A 192.0.2.1
db.corp.example. 60 IN A 192.0.2.1
www.corp.example. 60 IN A 192.0.2.1
www.split.example. 60 IN A 192.0.2.1
x.new.example. 60 IN A 192.0.2.1
web.secret. 60 IN A 192.0.2.1
8.8.8.8.in-addr.arpa. 60 IN TXT x
5.4.3.10.in-addr.arpa. 60 IN TXT x
`

// ask explains a query: NAME [TYPE [CLIENT]].
func ask(t *testing.T, l *local.Server, query string) explain.Result {
	t.Helper()
	words := append(strings.Fields(query), "", "")
	q := explain.Query{Name: words[0], Type: words[1]}
	if words[2] != "" {
		q.Client = netip.MustParseAddr(words[2])
	}
	r, err := l.Explain(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return r
}

// steps returns the directives of a result with their verdicts.
func steps(r explain.Result) string {
	var all []string
	for _, s := range r.Steps {
		all = append(all, s.Directive+" "+s.Verdict)
	}
	return strings.Join(all, ", ")
}

// A known is a query whose explanation is known beforehand.
type known struct{ server, query, summary, nearest, text string } // text is a part of what is printed

// checkKnown explains queries on servers, and compares. In what is expected DIR is a folder,
// and an UPSTREAM at the end any address.
func checkKnown(t *testing.T, dir string, servers map[string]*local.Server, cases []known) {
	t.Helper()
	for _, c := range cases {
		r := ask(t, servers[c.server], c.query)
		var printed strings.Builder
		explain.Write(&printed, r)
		got := strings.ReplaceAll(printed.String(), dir, "DIR")
		summary := strings.ReplaceAll(r.Summary, dir, "DIR")
		want := strings.TrimSuffix(strings.TrimSuffix(c.summary, "..."), "UPSTREAM") // the rest differs between runs
		if want != c.summary && strings.HasPrefix(summary, want) {
			summary = c.summary
		}
		if summary != c.summary || strings.Join(r.Nearest, " ") != c.nearest || !strings.Contains(got, c.text) {
			t.Errorf("%s, %s: got\n%swant the summary\n  %s\nthe nearest names %q and the text %q", c.server, c.query, got, c.summary, c.nearest, c.text)
		}
	}
}
