package local_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/server"
)

// The servers of a command write none of the files that those of the Corefile write.
func TestStartWritesNoFiles(t *testing.T) {
	dir := t.TempDir()
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: "signed.example.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET}, Flags: 257, Protocol: 3, Algorithm: dns.ED25519}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	const zone = "$TTL 60\n@ SOA ns host 1 2 3 4 60\n@ NS ns\nwww A 192.0.2.1\n"
	writeFiles(t, dir, map[string]string{
		"zone": zone, "k.key": key.String() + "\n", "k.private": key.PrivateKeyString(private),
	})

	primary, _ := serve(t, "primary.example:0 {\n bind 127.0.0.1\n root "+dir+"\n file zone\n transfer {\n to *\n}\n}\n")
	_, stop := serve(t, "signed.example:0 {\n bind 127.0.0.1\n root "+dir+"\n sign zone {\n key file k\n directory "+dir+"\n}\n file db.signed.example.signed\n}\n")
	stop()
	earlier := time.Now().Add(-time.Hour) // the zone file is newer: it has to be signed again
	if err := os.Chtimes(filepath.Join(dir, "db.signed.example.signed"), earlier, earlier); err != nil {
		t.Fatal(err)
	}
	before := state(t, dir)

	l := startIn(t, dir, `primary.example {
    secondary {
        transfer from `+primary+`
        file DIR/copy
    }
}
signed.example {
    root DIR
    sign zone {
        key file k
        directory DIR
    }
    file db.signed.example.signed
}
updates.example {
    root DIR
    tsig {
        secret key. c2VjcmV0
    }
    dynupdate {
        file zone
        database DIR/database
        allow key. *.updates.example. A
    }
}
`)
	l.Stop()
	if after := state(t, dir); after != before {
		t.Errorf("got the files\n%s\nwant those before\n%s", after, before)
	}

	if err := os.Remove(filepath.Join(dir, "db.signed.example.signed")); err != nil {
		t.Fatal(err)
	}
	c := corefile.ReadText("Corefile", []byte("signed.example {\n root "+dir+"\n sign zone {\n key file k\n directory "+dir+"\n}\n file zone\n}\n"))
	_, err = local.Start(t.Context(), c.Servers, server.Options{Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "the server signs the zone when it starts") {
		t.Errorf("without a signed file: got error %v, want one that says who signs it", err)
	}
}

// serve starts the servers of a Corefile, and returns the address of the first one, and a function that stops them.
func serve(t *testing.T, text string) (address string, stop func()) {
	t.Helper()
	c := corefile.ReadText("Corefile", []byte(text))
	plan, err := server.NewPlan(c.Servers, server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
	})
	if err == nil {
		err = plan.Start(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { plan.Stop(context.Background()) })
	t.Cleanup(stop)
	return plan.Addresses()[0].String(), stop
}

// state returns the names, the times and the modes of the files in a folder.
func state(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			lines = append(lines, path+" "+info.ModTime().String()+" "+info.Mode().String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
