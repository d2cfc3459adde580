package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// observerAddress is the address of a machine that asks both servers for their zones, over a network
// without faults. The server sends it NOTIFY messages.
var observerAddress = netip.MustParseAddr("10.0.2.1")

// copiedZones are the zones of which the secondary has copies.
var copiedZones = []string{clusterZone, reverseZone, fileZone}

const (
	// maxCopy is the option max_size of the secondary. No zone is as large.
	maxCopy = 256 << 10

	// notified is how long a copy may differ from the zone after a NOTIFY message: a transfer that
	// stalls ends after 30 s, and after one that took long the secondary rests for a minute.
	notified = 100 * time.Second
	// refreshed is the time without one: REFRESH of the zones of the cluster, the longest.
	refreshed = 7200*time.Second + notified
)

// A secondary is a second server, which copies zones of the first.
type secondary struct {
	*machine
	options server.Options
	plan    *server.Plan // nil while it is restarted
	link    *link        // to the primary

	mu      sync.Mutex
	zones   map[string]map[uint32][]string // of the primary: contents by zone and serial number
	changed map[string]time.Time           // when the observer has seen a new serial number of the primary
	newest  map[string]uint32              // serial numbers of the primary
	serials map[string]uint32              // of the copies
	lives   int                            // of the secondary: a crash begins another
	unknown map[string]map[uint32]string   // contents of copies whose version the observer has not seen yet
	tasks   sync.WaitGroup
	clients map[netip.AddrPort]*conn // of UDP
}

func newSecondary(w *world) *secondary {
	s := &secondary{
		machine: newMachine(w, "10.0.1.1"), zones: map[string]map[uint32][]string{}, changed: map[string]time.Time{},
		newest: map[string]uint32{}, serials: map[string]uint32{}, unknown: map[string]map[uint32]string{}, clients: map[netip.AddrPort]*conn{},
	}
	for _, z := range copiedZones {
		s.zones[z], s.unknown[z] = map[uint32][]string{}, map[uint32]string{}
	}
	s.link = &link{secondary: s}
	s.options = server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(logHandler{w, "secondary: "}), Metrics: new(metrics.Registry),
		Open: s.newProcess().open(s.replied), Dial: s.link.dial, NoFileEvents: true, MaxParked: maxParked,
	}
	return s
}

func (s *secondary) file(zone string) string { return filepath.Join(s.world.disk(), "copy."+zone) }

func (s *secondary) corefile() string {
	text := ".:53 {\n"
	for _, z := range copiedZones {
		text += fmt.Sprintf(" secondary %s {\n  transfer from %s\n  file %s\n  max_size %d\n }\n", z, s.world.server.address, s.file(z), maxCopy)
	}
	return text + " transfer {\n  to *\n }\n}\n"
}

// transferTo is the directive transfer of the primary.
func (s *secondary) transferTo() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" transfer {\n  to %s %s\n }\n", s.address, observerAddress)
}

func (s *secondary) start() {
	read := corefile.ReadText("Corefile", []byte(s.corefile()))
	plan, err := server.NewPlan(read.Servers, s.options)
	if err == nil && read.Err == nil {
		err = plan.Start(context.Background(), nil)
	}
	if err != nil || read.Err != nil {
		s.world.fail("starting the secondary: %v, %v", err, read.Err)
	}
	s.plan = plan
}

// step does one thing with the secondary, or nothing.
func (s *secondary) step() {
	w := s.world
	switch n := w.IntN(12); {
	case n < 2:
		s.link.misbehave([]linkFault{intact, linkFaults[w.IntN(len(linkFaults))]}[w.IntN(2)])
	case n < 3 && w.IntN(3) == 0:
		crash := w.IntN(2) == 0
		w.cause("restart of the secondary, crash %v", crash)
		s.restart(crash)
		w.due = w.due.Add(flight)
	}
	s.observe()
}

func (s *secondary) stop() {
	s.world.within(longestStop, "stop of the secondary", func() { s.plan.Stop(context.Background()) })
	s.plan = nil
}

// restart stops the secondary and starts it again. After a crash it has the files that it wrote
// before, or none.
func (s *secondary) restart(crash bool) {
	away, saved := s.world.storage.away, map[string][]byte{}
	for _, z := range copiedZones {
		saved[z], _ = os.ReadFile(s.file(z))
	}
	s.stop()

	for _, z := range copiedZones {
		switch {
		case !crash, away:
		case saved[z] == nil:
			_ = os.Remove(s.file(z))
		default:
			if err := os.WriteFile(s.file(z), saved[z], 0o600); err != nil {
				s.world.fail("%v", err)
			}
		}
	}

	if crash || away {
		s.mu.Lock()
		clear(s.serials)
		s.lives++
		s.mu.Unlock()
	}
	s.start()
	s.observe()
}

// replied passes the reply to a NOTIFY message to the primary.
func (s *secondary) replied(client netip.AddrPort, packet []byte) {
	s.mu.Lock()
	c := s.clients[client]
	s.mu.Unlock()
	_, _ = c.Write(packet)
}

// notify opens a UDP socket of the primary. Packets to the secondary are lost, late and repeated as
// the link is.
func (s *secondary) notify() net.Conn {
	s.mu.Lock()
	from := netip.AddrPortFrom(s.world.server.address, uint16(30_000+len(s.clients)))
	client, end := connect("udp", from, netip.AddrPortFrom(s.address, 53))
	s.clients[from] = end
	s.mu.Unlock()
	go func() {
		buf := make([]byte, 512)
		for {
			n, err := end.Read(buf)
			if err != nil {
				return
			}
			packet := slices.Clone(buf[:n])
			for _, delay := range s.link.delays() {
				time.AfterFunc(delay, func() {
					s.deliver(53, 0, packet, 0, from) // or it is lost
				})
			}
		}
	}()
	return client
}

// observeNotified reads the NOTIFY messages to the observer, and each version of the primary.
func (s *secondary) observeNotified() net.Conn {
	client, end := connect("udp", netip.AddrPortFrom(s.world.server.address, 30_000), netip.AddrPortFrom(observerAddress, 53))
	go func() {
		buf := make([]byte, 512)
		for {
			n, err := end.Read(buf)
			if err != nil {
				return
			}
			var m mdns.Msg
			if err := m.Unpack(buf[:n]); err != nil || len(m.Question) != 1 {
				s.world.fail("got NOTIFY message %v, %v", &m, err)
				return
			}
			reply, _ := new(mdns.Msg).SetReply(&m).Pack()
			_, _ = end.Write(reply)
			zone := m.Question[0].Name
			s.tasks.Go(func() { s.observePrimary(zone) })
		}
	}()
	return client
}

// observePrimary transfers a zone from the primary. Two versions with one serial number are equal.
func (s *secondary) observePrimary(zone string) (serial uint32, content string, ok bool) {
	s.mu.Lock()
	before, two := s.newest[zone], s.world.handOvers.running()
	s.mu.Unlock()
	serial, content, ok = s.transfer(s.world.server, zone, 0)
	if !ok {
		return 0, "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	two = two || s.world.handOvers.running() // processes, which differ for a moment
	if before > 0 && int32(serial-before) < 0 && !two {
		s.world.fail("the primary went back from serial number %d of %s to %d", before, zone, serial)
	}
	if newest := s.newest[zone]; newest == 0 || int32(serial-newest) > 0 {
		s.newest[zone] = serial
	}

	known := s.zones[zone][serial]
	if len(known) == 0 {
		s.changed[zone] = time.Now()
	}
	if slices.Contains(known, content) {
		return serial, content, true
	}
	// A Corefile may be loaded while the zone file is being written, with the number of the whole file.
	if len(known) > 0 && zone != fileZone {
		s.world.fail("the primary has two versions of %s with serial number %d:\n%s\nand\n%s", zone, serial, known[0], content)
	}
	s.zones[zone][serial] = append(known, content)
	return serial, content, true
}

// observe checks the copies: each is a version of the primary, and serial numbers only grow.
func (s *secondary) observe() {
	for _, zone := range copiedZones {
		s.mu.Lock()
		before, life := s.serials[zone], s.lives
		s.mu.Unlock()
		s.tasks.Go(func() {
			serial, content, ok := s.transfer(s.machine, zone, before)
			if !ok {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.lives == life {
				s.checkCopy(zone, before, serial, content)
			}
		})
	}
}

// checkCopy checks a copy that was transferred after one with the serial number before, 0 for none.
func (s *secondary) checkCopy(zone string, before, serial uint32, content string) {
	if int32(serial-before) < 0 && before != 0 {
		s.world.fail("the copy of %s went back from serial number %d to %d", zone, before, serial)
	}
	if serial == before {
		return // without content
	}
	if newest := s.serials[zone]; int32(serial-newest) > 0 || newest == 0 {
		s.serials[zone] = serial
	}
	switch known := s.zones[zone][serial]; {
	case len(known) == 0:
		s.unknown[zone][serial] = content
	case !slices.ContainsFunc(known, func(version string) bool { return copies(zone, content, version) }):
		s.world.fail("the copy of %s with serial number %d is\n%s\nwant\n%s", zone, serial, content, strings.Join(known, "\nor\n"))
	}
}

// copies reports whether content is a copy of a version of the primary. A process that starts while
// the zone file is being written serves its first records for a moment, which only the secondary may see.
func copies(zone, content, version string) bool {
	if zone != fileZone {
		return content == version
	}
	records := strings.Split(version, "\n")
	return !slices.ContainsFunc(strings.Split(content, "\n"), func(record string) bool {
		return !slices.Contains(records, record)
	})
}

// converged compares the copies with the zones, after the end of the faults.
func (s *secondary) converged(healed time.Time) {
	for _, zone := range copiedZones {
		s.mu.Lock()
		since, known := s.changed[zone], slices.Collect(maps.Keys(s.zones[zone]))
		s.mu.Unlock()
		serial, _, ok := s.observePrimary(zone)
		if !ok {
			s.world.fail("the primary has no zone %s", zone)
			continue
		}

		// Without descriptors the server has sent no NOTIFY message, so the time of the change is not known.
		promised := since.Add(notified)
		if since.Before(healed) || !slices.Contains(known, serial) {
			promised = healed.Add(refreshed)
		}

		got, has, ok := s.transfer(s.machine, zone, 0)
		if got != serial && !time.Now().After(promised) {
			time.Sleep(time.Until(promised))
			got, has, ok = s.transfer(s.machine, zone, 0)
		}
		if serial, content, _ := s.observePrimary(zone); !ok || got != serial || has != content {
			s.world.fail("the copy of %s has serial number %d, %v\n%s\nwant %d\n%s", zone, got, ok, has, serial, content)
			continue
		}
		s.mu.Lock()
		s.checkCopy(zone, s.serials[zone], got, has)
		s.mu.Unlock()
	}

	// The observer may have seen a version after its copy.
	s.tasks.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for zone, unknown := range s.unknown {
		for serial, content := range unknown {
			known := s.zones[zone][serial]
			same := func(version string) bool { return copies(zone, content, version) }
			if len(known) > 0 && !slices.ContainsFunc(known, same) {
				s.world.fail("the copy of %s with serial number %d was\n%s\nwant\n%s", zone, serial, content, strings.Join(known, "\nor\n"))
			}
		}
	}
}

// transfer returns a zone of a server, without the SOA record at the end, and no content if it has the
// serial number known. ok is false if the server has none.
func (s *secondary) transfer(from *machine, zone string, known uint32) (serial uint32, content string, ok bool) {
	c, err := from.connect(observerAddress, 53)
	if err != nil {
		return 0, "", false
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(longestStop))

	if known > 0 {
		if writeMessage(c, new(mdns.Msg).SetQuestion(zone, mdns.TypeSOA)) != nil {
			return 0, "", false
		}
		m, err := readMessage(c)
		if err != nil || len(m.Answer) == 0 {
			return 0, "", false
		}
		if serial = m.Answer[0].(*mdns.SOA).Serial; serial == known {
			return serial, "", true
		}
	}

	if writeMessage(c, new(mdns.Msg).SetAxfr(zone)) != nil {
		return 0, "", false
	}
	var records []string
	for n := 0; n < 2; {
		m, err := readMessage(c)
		if err != nil || m.Rcode != mdns.RcodeSuccess {
			return 0, "", false
		}
		for _, rr := range m.Answer {
			if soa, ok := rr.(*mdns.SOA); ok {
				serial = soa.Serial
				if n++; n == 2 {
					break
				}
			}
			records = append(records, rr.String())
		}
	}

	slices.Sort(records)
	return serial, strings.Join(records, "\n"), true
}

func writeMessage(c net.Conn, m *mdns.Msg) error {
	wire, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...))
	return err
}

func readMessage(c io.Reader) (*mdns.Msg, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	wire := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, wire); err != nil {
		return nil, err
	}
	m := new(mdns.Msg)
	return m, m.Unpack(wire)
}
