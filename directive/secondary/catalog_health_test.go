package secondary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// summaries returns severity and text of each condition, with the first and last words of a long text.
func summaries(b *health.Board) (all []string) {
	for _, c := range b.Conditions() {
		first, rest, _ := strings.Cut(c.Text, ":")
		if i := strings.LastIndex(rest, ";"); i >= 0 {
			first += rest[i:]
		}
		all = append(all, string(c.Severity)+" "+first)
	}
	return all
}

// However many members of a catalog cannot be transferred, they are one condition with their number,
// which ends with the last of them.
func TestConditionsOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, shared := new(chaintest.Log), new(config.Shared)
		r := newServer(chaintest.QuietLog(), nil)
		m, err := r.claim(config.NewStart(t.Context(), nil), nil, &config.Block{Log: log.Logger(), Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Stop()

		away := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }
		c := &catalog{options: options{origin: origin}, clients: []*client{{dial: away}}}
		m.scope = &scope{zones: []wire.Name{"\x00"}, all: []*catalog{c}}
		list := func(n int) {
			t.Helper()
			var text strings.Builder
			text.WriteString("@ 5 SOA 1\nversion TXT 2\n")
			for i := range n {
				fmt.Fprintf(&text, "%d.zones PTR %d.test.\n", i, i)
			}
			z, err := receiveAll(nil, message(t, mdns.TypeAXFR, text.String()+"@ 5 SOA 1"))
			if err == nil {
				err = m.update(c, z)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}

		list(500)
		board := &shared.Health
		if got := summaries(board); len(got) != 1 || !strings.HasPrefix(got[0], "critical the zone ") || !strings.HasSuffix(got[0], "; 499 more zones of catalogs are as bad") {
			t.Errorf("500 members that are not served: got %q, want one condition with their number", got)
		}
		list(1)
		if got, want := summaries(board), []string{"critical the zone 0.test. cannot be transferred and is not served"}; !slices.Equal(got, want) {
			t.Errorf("after the others were removed: got %q, want %q", got, want)
		}
		list(0)
		if got := summaries(board); len(got) != 0 {
			t.Errorf("without members: got %q, want no condition", got)
		}
		list(2)
		m.Stop()
		if got := summaries(board); len(got) != 0 {
			t.Errorf("after the end: got %q, want no condition", got)
		}
	})
}

// Members that are not served, and others whose old version is, are a condition each. A member is in
// the worse one alone, and the oldest is the example.
func TestConditionsOfMembersBySeverity(t *testing.T) {
	board := new(health.Board)
	m := &memberConditions{board: board}
	set := func(owner int, name string, severity health.Severity) {
		m.Set(owner, name, health.Condition{Severity: severity, Text: fmt.Sprintf("%s of %d", name, owner)})
	}
	wants := func(want ...string) {
		t.Helper()
		if got := summaries(board); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	set(1, "transfer", health.Warning)
	set(2, "transfer", health.Warning)
	set(2, "file", health.Warning)
	set(3, "file", health.Warning)
	wants("warning transfer of 1; 2 more zones of catalogs are as bad")
	set(2, "expired", health.Critical)
	wants("critical expired of 2", "warning transfer of 1; 1 more zones of catalogs are as bad")
	set(1, "expired", health.Critical)
	wants("critical expired of 2; 1 more zones of catalogs are as bad", "warning file of 3")
	m.Clear(2, "expired")
	wants("critical expired of 1", "warning file of 3; 1 more zones of catalogs are as bad")
	m.Forget(1)
	m.Clear(1, "expired")
	m.Clear(2, "transfer")
	m.Clear(3, "file")
	wants("warning file of 2")
	m.Forget(2)
	wants()
}
