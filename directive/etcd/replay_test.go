package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// The cases of SkyDNS's and CoreDNS's own tests have the same answers.
func TestReplay(t *testing.T) {
	for _, r := range replays(t) {
		t.Run(r.file, func(t *testing.T) {
			h := handler(t, r.directive())
			h.index.put(keyValues(r.keys)...)
			r.run(t, r.serve(t, h))
		})
	}
}

// The answers are equal if each query reads etcd.
func TestReplayWithoutWatch(t *testing.T) {
	for _, r := range replays(t) {
		t.Run(r.file, func(t *testing.T) {
			h := handler(t, r.directive())
			h.keyReader, h.direct = store{h.index, keyValues(r.keys)}, func() bool { return true }
			r.run(t, r.serve(t, h))
		})
	}
}

// A store takes the place of etcd, for the index of a handler.
type store struct {
	of  *index
	all []keyValue
}

func (s store) read(_ context.Context, path string) (*index, func(), error) {
	x, key := s.of.newQueryIndex(), keyOf(s.of.prefix, []byte(path))
	for _, kv := range s.all {
		if k := string(kv.key); k == key || strings.HasPrefix(k, key+"/") {
			x.put(kv)
		}
	}
	x.endList()
	return x, func() {}, nil
}

// unavailable is an etcd that does not respond.
type unavailable struct{}

func (unavailable) read(context.Context, string) (*index, func(), error) {
	return nil, nil, errors.New("unavailable")
}

// If etcd does not respond, the reply is SERVFAIL and the next handler is not called.
func TestUnavailableWithoutWatch(t *testing.T) {
	h := handler(t, "etcd test {\nfallthrough\n}")
	h.keyReader, h.direct = unavailable{}, func() bool { return true }
	h.index.clear()
	if !h.Ready() {
		t.Error("Ready without a watch: got false, want true")
	}
	w := &upstream{}
	s := serve(t, h, w, ".")
	for _, qtype := range []string{"A", "TXT", "SRV", "PTR", "HINFO"} {
		s.expect(t, "www.test.", qtype, "SERVFAIL\n")
	}
	s.expect(t, "test.", "A", "SERVFAIL\n")
	s.expect(t, "test.", "SOA", "NOERROR aa\nanswer test. 30 IN SOA ns.dns.test. hostmaster.test.\n")
	if len(w.queries) > 0 {
		t.Errorf("upstream queries: got %v, want none", w.queries)
	}
}

// A key that does not change is answered during changes of other keys.
func TestAnswersDuringChanges(t *testing.T) {
	h := handler(t, "etcd test")
	h.index.put(keyValues(`/skydns/test/m/stays {"host":"10.0.0.1"}`)...)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		s := serve(t, h, nil, "test.")
		readers.Go(func() {
			for ctx.Err() == nil {
				m := new(mdns.Msg)
				if err := m.Unpack(s.Serve(packet(t, "stays.m.test.", "A", 1232), dns.UDP)); err != nil || len(m.Answer) != 1 {
					t.Errorf("got error %v and\n%s\nwant an answer", err, m)
					return
				}
				s.Serve(packet(t, "m.test.", "SRV", 1232), dns.UDP)
			}
		})
	}
	for round := range 200 {
		var kvs []keyValue
		var keys [][]byte
		for i := range 40 {
			kv := keyValues(fmt.Sprintf(`/skydns/test/m/k%d {"host":"10.0.%d.%d","group":"g"}`, (round*17+i*31)%1000, round, i))[0]
			kvs, keys = append(kvs, kv), append(keys, kv.key)
		}
		switch round % 4 {
		case 3:
			h.index.beginList()
			h.index.put(append(kvs, keyValues(`/skydns/test/m/stays {"host":"10.0.0.1"}`)...)...)
			h.index.endList()
		case 2:
			h.index.delete(keys...)
		default:
			h.index.put(kvs...)
		}
	}
	cancel()
	readers.Wait()
}
