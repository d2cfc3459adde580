package tcx

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// loInterface is the index of lo in every network namespace.
const loInterface = 1

// state is struct interface of program/capture.c.
type state struct {
	mac      atomic.Uint64 // its six bytes in order, and two of zero
	queries  atomic.Uint64
	families [families]familyState
}

// familyState is struct family of program/capture.c.
type familyState struct {
	pending, replied atomic.Uint64 // times
	paused, probe    atomic.Uint32
}

// The indexes of address families.
const (
	family4 = iota
	family6
	families
)

// pair4 and pair6 are the structs of program/capture.c.
type (
	pair4 struct{ Cluster, Alias [4]byte }
	pair6 struct{ Cluster, Alias [16]byte }
)

// A program is the pair of loaded programs and their maps.
type program struct {
	query, reply *ebpf.Program
	slots        *ebpf.Map
	page         *Beat
	heartbeat    *ebpf.Map
	replies      *ebpf.Map // nil if no replies can be repeated
	samples      *ebpf.Map
	unrepeated   error // the reason
	gate         []byte
	states       []byte
	limit        int // of interfaces
	collection   *ebpf.Collection
}

// load loads the programs and their maps into the kernel.
func load(pairs []Pair, port uint16, times Times) (*program, error) {
	return loadWith(ebpf.NewMap, pairs, port, times)
}

// loadWith is load with another function that makes the array of replies. If that fails, the programs repeat none.
func loadWith(
	newMap func(*ebpf.MapSpec) (*ebpf.Map, error), pairs []Pair, port uint16, times Times,
) (*program, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(strings.NewReader(object))
	if err != nil {
		return nil, err
	}
	if err := configure(spec, pairs, port, times.orDefaults()); err != nil {
		return nil, err
	}

	array := spec.Maps["seamark_replies"]
	replies, unrepeated := newMap(array)
	if unrepeated != nil { // an array without a reply
		array = array.Copy()
		array.MaxEntries, array.Flags = 1, 0
		var err error
		if replies, err = ebpf.NewMap(array); err != nil {
			return nil, err
		}
	}
	spec.Maps["seamark_replies"] = array
	defer replies.Close() // the collection has a copy

	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"seamark_replies": replies},
	})
	if err != nil {
		return nil, err
	}
	p := &program{
		query: c.Programs["seamark_query"], reply: c.Programs["seamark_reply"],
		slots: c.Maps["seamark_slots"], heartbeat: c.Maps["seamark_shared"], replies: c.Maps["seamark_replies"],
		samples: c.Maps["seamark_samples"], limit: int(c.Maps["seamark_states"].MaxEntries()), collection: c,
	}
	if p.unrepeated = unrepeated; unrepeated != nil {
		p.replies = nil
	}
	if err := p.mapAll(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// configure sets the constants of the programs.
func configure(spec *ebpf.CollectionSpec, pairs []Pair, port uint16, times Times) error {
	var four [MaxPairs]pair4
	var six [MaxPairs]pair6
	n4, n6 := 0, 0
	for _, p := range pairs {
		if p.Cluster.Is4() {
			four[n4] = pair4{p.Cluster.As4(), p.Alias.As4()}
			n4++
		} else {
			six[n6] = pair6{p.Cluster.As16(), p.Alias.As16()}
			n6++
		}
	}

	var errs []error
	for name, value := range map[string]any{
		"pairs4": four, "pairs6": six, "dns_port": [2]byte{byte(port >> 8), byte(port)},
		"stale": times.Stale, "silence": times.Silence, "forget": times.Forget, "reached": times.Reached,
	} {
		errs = append(errs, spec.Variables[name].Set(value))
	}
	return errors.Join(errs...)
}

// mapAll maps the arrays that this process reads or writes into memory.
func (p *program) mapAll() (err error) {
	p.states, err = mapped(p.collection.Maps["seamark_states"].FD(), p.limit*int(unsafe.Sizeof(state{})))
	if err != nil {
		return fmt.Errorf("mapping the states of interfaces: %w", err)
	}
	if p.gate, err = mapped(p.collection.Maps["seamark_gate"].FD(), 8); err != nil {
		return fmt.Errorf("mapping the gate: %w", err)
	}
	p.page, err = mapBeat(p.heartbeat.FD())
	return err
}

// open opens or closes the gate for new queries.
func (p *program) open(open bool) {
	value := uint64(0)
	if open {
		value = 1
	}
	(*atomic.Uint64)(unsafe.Pointer(&p.gate[0])).Store(value)
}

// state returns the state of an interface.
func (p *program) state(slot uint32) *state {
	return (*state)(unsafe.Pointer(&p.states[uintptr(slot)*unsafe.Sizeof(state{})]))
}

// close releases everything. The programs must be detached.
func (p *program) close() {
	if p.page != nil {
		p.page.Close()
	}
	for _, memory := range [][]byte{p.gate, p.states} {
		if memory != nil {
			_ = unix.Munmap(memory)
		}
	}
	p.collection.Close()
}

// id returns the kernel's number of a program.
func id(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, errors.New("the kernel does not report it")
	}
	return id, nil
}

// loadUnused loads programs that capture nothing.
func loadUnused() (*program, error) {
	address := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	return load([]Pair{{address, address}}, 53, Times{})
}

// Probe reports whether Open would work for this process: it loads the programs and
// attaches nothing.
func Probe() (Support, error) {
	if err := checkCapabilities(); err != nil {
		return Unsupported, err
	}
	// The programs come first: if bpf is denied, the query fails as on a kernel without TCX.
	p, err := loadUnused()
	if err != nil {
		return loadSupport(err)
	}
	p.close()

	_, err = link.QueryPrograms(link.QueryOptions{Target: loInterface, Attach: ebpf.AttachTCXIngress})
	switch {
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return Unsupported, errors.New("the kernel has no TCX: it needs Linux 6.6")
	case err != nil:
		return Unknown, fmt.Errorf("listing BPF programs: %w", err)
	}
	return Supported, nil
}

// checkCapabilities returns an error that names the missing capabilities.
func checkCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil // the kernel decides when the programs are loaded
	}

	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	var missing []string
	if !has(unix.CAP_BPF) && !has(unix.CAP_SYS_ADMIN) {
		missing = append(missing, "BPF")
	}
	if !has(unix.CAP_NET_ADMIN) {
		missing = append(missing, "NET_ADMIN")
	}

	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("BPF programs need the capability %s: add it to the container, and run it as user 0,"+
		" because other users do not receive added capabilities", strings.Join(missing, " and "))
}

func loadSupport(err error) (Support, error) {
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && !isVerifier(err):
		return Unsupported, fmt.Errorf("loading the BPF programs: %w: the seccomp profile of the container,"+
			" or a security module of the kernel, has to permit bpf", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return Unsupported, fmt.Errorf("loading the BPF programs: %w", err)
	}
	return Unknown, fmt.Errorf("loading the BPF programs: %w", err)
}

func isVerifier(err error) bool {
	_, ok := errors.AsType[*ebpf.VerifierError](err)
	return ok
}
