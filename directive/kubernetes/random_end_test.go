package kubernetes

import (
	"bytes"
	"fmt"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
)

// checkNewIndex compares the index with one that is built from the present objects: replicas
// that started at different times must have the same answers.
func (c *randomCluster) checkNewIndex(t *testing.T, s *server, m *model) error {
	fresh := c.newIndex()
	for _, i := range c.Perm(len(c.kinds())) {
		relist(fresh, c.kinds()[i], c.have.list(c.kinds()[i]))
	}
	if got, want := c.index.serial.Load(), fresh.serial.Load(); got != want {
		return fmt.Errorf("serial: got %d, want %d, that of a rebuilt index", got, want)
	}
	if got, want := c.index.importSerial.Load(), fresh.importSerial.Load(); got != want {
		return fmt.Errorf("serial of imports: got %d, want %d, that of a rebuilt index", got, want)
	}
	for kind := range cluster.Kinds {
		want := 0
		for range c.index.keys(kind) {
			want++
		}
		if got := c.index.objects[kind].Load(); got != int64(want) {
			return fmt.Errorf("%s: got %d objects counted, want %d", kind, got, want)
		}
	}
	other := serve(t, c.directive, c.handler(t, fresh))
	for name := range m.names {
		for _, qtype := range queryTypes() {
			packet := request(t, name, mdns.StringToType[qtype], 0)
			if got, want := s.send(packet, dns.TCP), other.send(packet, dns.TCP); !bytes.Equal(got, want) {
				return fmt.Errorf("%s %s: got\n%swant, from a rebuilt index\n%s", name, qtype, digest(parse(t, got)), digest(parse(t, want)))
			}
		}
	}
	return nil
}

// checkEmpty deletes everything, after which nothing must be left.
func (c *randomCluster) checkEmpty() error {
	for _, i := range c.Perm(len(c.kinds())) {
		kind := c.kinds()[i]
		if c.chance(50) {
			c.set(kind, nil)
			continue
		}
		for _, o := range c.have.list(kind) {
			c.index.Delete(kind, o.Key())
		}
		clear(c.have[kind])
	}
	ix := c.index
	for what, n := range map[string]int{
		"reverse": len(leavesOf(&ix.reverse)) + len(leavesOf(&ix.claims)), "services": ix.services.Len(), "imports": ix.imports.Len(), "spaces": ix.namespaces.Len(), "pods": ix.pods.Len(),
		"strays": len(ix.sliceOwners[cluster.Slices]) + len(ix.sliceOwners[cluster.ImportSlices]), "podsBy": len(ix.podObjects), "drafts": len(ix.changes.ordered),
		"serial": int(ix.serial.Load()), "importSerial": int(ix.importSerial.Load()),
	} {
		if n != 0 {
			return fmt.Errorf("%s after all objects are deleted: got %d, want 0", what, n)
		}
	}
	return nil
}
