package config

import (
	"io"
	"net"
	"os"
)

// A State is a resource with data that a process passes to its replacement, so that the
// data need not be collected again. Directives get it from Keep.
type State interface {
	Stopper
	// StateName returns a name that no other State of the process has, and that is
	// equal in both processes if the data have the same use.
	StateName() string
	// SaveState writes the data, while queries are answered.
	SaveState(w io.Writer) error
}

// A Yielder is a resource of which both processes have one while one of them replaces the other, such
// as a file that both would write, or a zone whose versions both number.
type Yielder interface {
	Stopper
	// Yield is called before the other process may answer queries: from then on this one does not write
	// what that one may have written. What States save is of a moment after it. The other process waits, for
	// a few seconds at most.
	Yield()
	// Resume is called once this process answers alone, also if it has replaced the other one. That may have
	// answered from versions that are not known here.
	Resume()
}

// Yield calls Yield of the plan's resources.
func (s *Start) Yield() { s.yielders(Yielder.Yield) }

// Resume calls Resume of the plan's resources.
func (s *Start) Resume() { s.yielders(Yielder.Resume) }

func (s *Start) yielders(call func(Yielder)) {
	for _, resource := range s.kept {
		if y, ok := resource.(Yielder); ok {
			call(y)
		}
	}
}

// A Loader is a State that is loaded after the functions passed to OnStart, before the
// plan answers queries. Others are loaded by OnStart itself, from Data.
type Loader interface {
	State
	// LoadState reads the data that SaveState of the other process has written, which may be
	// incomplete.
	LoadState(r io.Reader) error
}

// Data returns the data that the State of this name has saved in the process that this one
// replaces, or nil. It may be incomplete. The caller must close it.
func (s *Start) Data(name string) *os.File {
	f := s.Saved[name]
	delete(s.Saved, name)
	return f
}

// States returns the states of the plan by their names.
func (s *Start) States() map[string]State {
	states := map[string]State{}
	for _, resource := range s.kept {
		if state, ok := resource.(State); ok {
			states[state.StateName()] = state
		}
	}
	return states
}

// A Socket is a resource that listens for connections, with a socket from Listen.
// Directives get it from Keep.
type Socket interface {
	Stopper
	// Socket returns the address that was passed to Listen, and a copy of the
	// socket, which the caller must close; nil if it is not open.
	Socket() (address string, f *os.File, err error)
}

// Listen listens on a TCP address, or on the Unix socket unix:PATH, with the socket of the
// process that this one replaces if it has one. taken reports whether that is so: then the
// other process accepts connections, too, until this one answers queries.
func (s *Start) Listen(address string) (l net.Listener, taken bool, err error) {
	f := s.Taken[address]
	if f != nil && s.ListenTCP == nil {
		l, err = net.FileListener(f)
	} else {
		l, err = s.Opener(address)()
	}
	return l, f != nil, err
}

// Opener returns a function that opens an address of Listen. It may be called when the plan is no
// longer served.
func (s *Start) Opener(address string) func() (net.Listener, error) {
	if path, ok := SocketPath(address); ok {
		return func() (net.Listener, error) { return listenUnix(path) }
	}
	listen, ctx := s.ListenTCP, s.Context
	if listen == nil {
		return func() (net.Listener, error) { return net.Listen("tcp", address) }
	}
	return func() (net.Listener, error) { return listen(ctx, "tcp", address) }
}

// Sockets returns copies of the sockets that the plan listens on with Listen, by their
// addresses. The caller must close them.
func (s *Start) Sockets() (map[string]*os.File, error) {
	sockets := map[string]*os.File{}
	for _, resource := range s.kept {
		if socket, ok := resource.(Socket); ok {
			address, f, err := socket.Socket()
			if err != nil {
				return sockets, err
			}
			if f != nil {
				sockets[address] = f
			}
		}
	}
	return sockets, nil
}
