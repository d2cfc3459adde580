package admin

import (
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/wire"
)

// A slowLister has one record, and a minute later another one.
type slowLister struct{ t *testing.T }

func (slowLister) AuthoritativeZones() []wire.Name { return []wire.Name{"\x07example\x00"} }

func (l slowLister) ZoneRecords(wire.Name) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, text := range []string{"first.example. 60 IN A 192.0.2.1", "last.example. 60 IN A 192.0.2.2"} {
			rr, err := dns.NewRR(text)
			if err != nil {
				l.t.Fatal(err)
			}
			packet := make([]byte, 100)
			n, err := dns.PackRR(rr, packet, 0, nil, false)
			if err != nil {
				l.t.Fatal(err)
			}
			if !yield(packet[:n]) {
				return
			}
			time.Sleep(time.Minute)
		}
	}
}

// A deadlineRecorder rejects writes after the deadline of the connection.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *deadlineRecorder) Write(p []byte) (int, error) {
	if time.Now().After(w.deadline) {
		return 0, http.ErrHandlerTimeout
	}
	return w.ResponseRecorder.Write(p)
}

// A list of records that takes long because few of them are selected is sent: the deadline is
// that of a client that does not read.
func TestRecordsTakeLong(t *testing.T) {
	for name, want := range map[string]int{"first": 1, "last": 1, "example": 2, "none": 0} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{
				blocks: []*Admin{{block: new(config.Block), records: []inventory.Named{{Lister: slowLister{t}}}}},
				turns:  status.NewTurns(),
			}
			w := &deadlineRecorder{httptest.NewRecorder(), time.Now().Add(30 * time.Second)}
			s.listRecords(w, httptest.NewRequest("GET", "/v1/records?name="+name, nil))
			if n := strings.Count(w.Body.String(), "\n"); n != want {
				t.Errorf("name %s: got %d records, want %d", name, n, want)
			}
			if time.Now().After(w.deadline) {
				t.Errorf("name %s: the server cannot end its reply, whose deadline was %v ago", name, time.Since(w.deadline))
			}
		})
	}
}
