package directive

import (
	"errors"
	"runtime"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Handover is the path of the socket at which another process may replace this one.
type Handover struct {
	path   string
	remain bool
	from   corefile.Directive
}

// Handover returns the path, whether the process remains after a hand-over, and the
// directive.
func (h *Handover) Handover() (path string, remain bool, from corefile.Directive) {
	return h.path, h.remain, h.from
}

// SetupHandover sets up the handover directive, which lets a new process replace
// a running one without losing a query.
//
//	handover PATH {
//	    remain
//	}
//
// To upgrade the server, start the new process while the old one runs, with a
// Corefile that has the same PATH. The new process connects to the Unix socket
// PATH and receives from the old one
//
//   - the UDP sockets and TCP listeners of all addresses,
//   - the listeners of health, ready, prometheus and other status pages,
//   - the entries of cache, and the objects of kubernetes.
//
// When every directive of the new process is ready, it answers queries: from the
// old one's objects of kubernetes until it has received its own, so that the API
// server may be away. Then the old process passes it
// the open TCP connections, each when no query on it is in progress, answers the
// queries that wait, and ends with status 0. No query is lost, and clients on
// persistent connections notice nothing.
//
// Connections over TLS, HTTPS, gRPC and QUIC cannot be passed: the old process
// closes them, and their clients connect to the new one. The new process reads the
// sockets of QUIC when the old one does not any more.
//
// If no process listens at PATH, the server starts as usual and listens there.
// The directory must exist. The socket has mode 0600, and only processes of the
// same user or of root can use it. A second file, PATH.lock, makes starts follow
// each other.
//
// If the new process fails, is killed or is not ready within 50s, the old one
// continues to serve. If the old process ends during the hand-over, the new one
// continues with the data that it has received. A process with another version of the
// protocol is refused, and ends with an error.
//
// The Corefiles may differ: the new process opens the addresses that only its
// Corefile has, and the old one closes the others. The process ID changes; the
// new process writes its own into the pidfile. Queries that wait for more than
// 5s delay the end of the old process, and their TCP connections are closed.
//
// remain makes the old process wait for a signal after the hand-over, without
// sockets, instead of ending. Use it under a supervisor that would start an ended
// process again, such as a kubelet.
//
// handover applies to the whole server: give it in one server block. It needs
// Linux.
//
//	.:1053 {
//	    handover seamark.sock {
//	        remain
//	    }
//	    whoami
//	}
//
// Ours: CoreDNS closes its sockets in a restart.
func SetupHandover(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &Handover{from: d}
	b.Offer(h)
	return errors.Join(config.Once(uses), d.Arity(1, 1), d.Options(corefile.Option{Usage: "remain", Set: corefile.Flag(&h.remain)}), h.setPath(b))
}

func (h *Handover) setPath(b *config.Block) error {
	const maxPath = 107 // sun_path of unix(7)
	d := h.from
	if len(d.Args) == 0 {
		return nil // reported by Arity
	}
	h.path = b.Path(d.Args[0].Text)
	switch {
	case d.Args[0].Text == "":
		return d.Errorf("want the path of a socket")
	case len(h.path) > maxPath:
		return d.Errorf("want a path of at most %d bytes, got %d: %s", maxPath, len(h.path), h.path)
	case runtime.GOOS != "linux":
		return d.Errorf("handover needs Linux")
	}
	return nil
}
