package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/program"
)

// A terminal that does not read does not make the server wait: the command skips queries,
// reports how many, and ends at a signal even while it cannot write.
func TestTailSlowOutput(t *testing.T) {
	long(t)
	t.Parallel()
	const events = 3000 // 24 MB: more than sockets keep, and more events than the command keeps
	sent := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		name := strings.Repeat("a", 8192)
		for range events {
			if _, err := fmt.Fprintf(w, "{\"name\":%q}\n", name); err != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		sent <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	for i, resume := range []bool{true, false} {
		tail := program.Command(t, t.TempDir(), "tail", "--output=json", "--admin", server.URL)
		out, err := tail.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := tail.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-sent:
		case <-time.After(time.Minute):
			t.Fatalf("%d: the server waits for the command", i)
		}
		for lines := bufio.NewReader(out); resume; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%d: got error %v, want a line with the number of lost queries", i, err)
			}
			var e struct{ Lost int }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%d: got %.100q and error %v", i, line, err)
			}
			if e.Lost > 0 {
				break
			}
		}
		if err := tail.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := tail.Wait(); err != nil {
			t.Errorf("%d: at SIGINT: got %v, want status 0", i, err)
		}
	}
}
