package supervisor

import (
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/server/handover"
)

// A hungSocket is that of a worker whose supervisor hangs: it has room for some packets, and no replies.
type hungSocket struct {
	room   int
	latest time.Time // the deadline of writes
}

func (s *hungSocket) WriteMsgUnix(b, oob []byte, _ *net.UnixAddr) (n, oobn int, err error) {
	if s.room == 0 {
		time.Sleep(time.Until(s.latest))
		return 0, 0, os.ErrDeadlineExceeded
	}
	s.room--
	return len(b), len(oob), nil
}

func (s *hungSocket) SetWriteDeadline(t time.Time) error {
	s.latest = t
	return nil
}

func (*hungSocket) ReadMsgUnix([]byte, []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	select {}
}
func (*hungSocket) SetReadDeadline(time.Time) error { return nil }
func (*hungSocket) Close() error                    { return nil }

// A supervisor that hangs delays a reload by keepTimeout, however many sockets it has room for, and the error
// names what was waited for.
func TestKeepOfHungSupervisor(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	sockets := make([]*os.File, 20)
	for i := range sockets {
		sockets[i] = null
	}
	for _, x := range []struct {
		room int
		want string
	}{
		{0, "sending begin"}, {1, "sending socket"}, {len(sockets), "sending socket"},
		{1 + len(sockets), "sending end"}, {2 + len(sockets), "the supervisor did not answer end within 5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, start := &Worker{conn: handover.NewConn(&hungSocket{room: x.room}, 1)}, time.Now()
			err := w.Keep(sockets)
			if took := time.Since(start); err == nil || !strings.Contains(err.Error(), x.want) || took != keepTimeout {
				t.Errorf("room for %d packets: got error %v after %v, want %q after %v", x.room, err, took, x.want, keepTimeout)
			}
		})
	}
}
