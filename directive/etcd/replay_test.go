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

// What SkyDNS and CoreDNS answer in their own tests is answered here.
func TestReplay(t *testing.T) {
	for _, r := range replays(t) {
		t.Run(r.file, func(t *testing.T) {
			h := handler(t, r.directive())
			h.index.put(keyValues(r.keys)...)
			r.run(t, r.serve(t, h))
		})
	}
}

// The same comes of asking for each question what etcd has.
func TestReplayAsked(t *testing.T) {
	for _, r := range replays(t) {
		t.Run(r.file, func(t *testing.T) {
			h := handler(t, r.directive())
			h.keyReader, h.direct = store(keyValues(r.keys)), func() bool { return true }
			r.run(t, r.serve(t, h))
		})
	}
}

// A store stands for etcd.
type store []keyValue

func (s store) readKeys(_ context.Context, key string) (all []keyValue, err error) {
	for _, kv := range s {
		if k := string(kv.key); k == key || strings.HasPrefix(k, key+"/") {
			all = append(all, kv)
		}
	}
	return all, nil
}

// away is an etcd that does not answer.
type away struct{}

func (away) readKeys(context.Context, string) ([]keyValue, error) { return nil, errors.New("away") }

// What etcd does not say is SERVFAIL, and nobody else is asked.
func TestAskedInVain(t *testing.T) {
	h := handler(t, "etcd test {\nfallthrough\n}")
	h.keyReader, h.direct = away{}, func() bool { return true }
	h.index.clear()
	if !h.Ready() {
		t.Error("not ready, though nothing has to be listed")
	}
	w := &world{}
	s := serve(t, h, w, ".")
	for _, qtype := range []string{"A", "TXT", "SRV", "PTR", "HINFO"} {
		s.expect(t, "www.test.", qtype, "SERVFAIL\n")
	}
	s.expect(t, "test.", "A", "SERVFAIL\n")
	s.expect(t, "test.", "SOA", "NOERROR aa\nanswer test. 30 IN SOA ns.dns.test. hostmaster.test.\n")
	if len(w.asked) > 0 {
		t.Errorf("others have been asked: %v", w.asked)
	}
}

// Changes do not disturb readers: a key that stays answers all the while.
func TestReadersDoNotWait(t *testing.T) {
	h := handler(t, "etcd test")
	h.index.put(keyValues(`/skydns/test/m/stays {"host":"10.0.0.1"}`)...)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		s := serve(t, h, nil, "test.")
		readers.Go(func() {
			for ctx.Err() == nil {
				m := new(mdns.Msg)
				if err := m.Unpack(s.send(packet(t, "stays.m.test.", "A", 1232), dns.UDP)); err != nil || len(m.Answer) != 1 {
					t.Errorf("%v\n%s", err, m)
					return
				}
				s.send(packet(t, "m.test.", "SRV", 1232), dns.UDP)
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
