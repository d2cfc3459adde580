package dynupdate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// A server that is killed while it updates loses no update that a client was told of.
func TestDatabaseKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a process several times")
	}
	w := newWorld(t)
	w.stop()
	w.text = w.block("database DIR/db", "+bind 127.0.0.1")
	w.write("Corefile", w.text)

	told := 0 // the number in the last record that the client was told of
	for range 5 {
		c := program.Command(t, w.dir, "-conf", "Corefile", "-dns.port", fmt.Sprint(w.at.Port()))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		client := &mdns.Client{Net: "tcp", Timeout: patience, TsigSecret: map[string]string{"key.": secret}}
		send := func(n int) error {
			m := message(t, "delete last", fmt.Sprintf("add last 60 TXT %d", n)).SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
			r, _, err := client.Exchange(m, w.at.String())
			if err == nil && r.Rcode != mdns.RcodeSuccess {
				err = fmt.Errorf("got %v", r)
			}
			return err
		}
		next, begin := told+1, time.Now()
		for send(next) != nil { // until the server listens
			if time.Since(begin) > time.Minute {
				t.Fatal("the server does not answer")
			}
			time.Sleep(10 * time.Millisecond)
		}
		told = next

		killed := make(chan error)
		time.AfterFunc(50*time.Millisecond, func() { killed <- c.Process.Kill() })
		for send(told+1) == nil {
			told++
		}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()

		w.start()
		var got int
		_, _ = fmt.Sscanf(w.lookup("last", "TXT"), `60 "%d"`, &got)
		if got != told && got != told+1 {
			t.Errorf("got the record of update %d, want that of %d or the one after it", got, told)
		}
		told = got
		w.stop()
	}
	if _, err := os.Stat(filepath.Join(w.dir, "db")); err != nil {
		t.Error(err)
	}
}
