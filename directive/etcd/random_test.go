package etcd

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/zone/ordered"
)

// The index and its answers equal the model's after random changes of the keys.
func TestRandomChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for seed := range race.Fewer(uint64(60)) {
		random := rand.New(rand.NewPCG(seed, 6))
		changeAndQuery(t, func(n int) int { return random.IntN(n) }, 25)
	}
}

func FuzzRandom(f *testing.F) {
	f.Add([]byte("some keys come and go, and are listed again"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		choices = choices[:min(len(choices), 2000)] // limits the time of an input
		changeAndQuery(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := choices[0]
			choices = choices[1:]
			return int(c) % n
		}, 10)
	})
}

// changeAndQuery changes keys and compares answers in each round. pick returns a number
// below n.
func changeAndQuery(t *testing.T, pick func(n int) int, rounds int) {
	m := &model{values: map[string]string{}, skydns: pick(2) == 1}
	options := ""
	if m.skydns {
		options = "compatible skydns"
	}
	s := serveKeys(t, options, "")
	for range rounds {
		changeKeys(m, s.h.index, pick)
		checkIndex(t, s.h.index, m)
		for range 6 {
			name, qtype := pickOne(pick, names), pickOne(pick, []string{"A", "AAAA", "TXT", "SRV", "MX", "CNAME", "PTR", "NS", "HINFO"})
			if got, want := digest(s.exchange(name, qtype)), sorted(m.reply(name, qtype)); got != want {
				t.Fatalf("%s %s\ngot\n%swant\n%s%v", name, qtype, got, want, m.dump())
			}
		}
		if t.Failed() {
			return
		}
	}
}

func (m *model) dump() (lines []string) {
	for key, value := range m.values {
		lines = append(lines, "\n"+key+" "+value)
	}
	slices.Sort(lines)
	return lines
}

// names are queried; keys are similar.
var names = []string{
	"test.", "a.test.", "b.test.", "ab.test.", "a.a.test.", "b.a.test.", "a-b.test.", "a.b.test.", "c.b.a.test.", "ns.dns.test.", "apex.dns.test.", "dns.test.",
	"*.test.", "any.test.", "*.a.test.", "a.*.test.", "b.any.test.", "*.*.test.", "missing.test.", "a.missing.test.",
}

func pickOne[T any](pick func(int) int, all []T) T { return all[pick(len(all))] }

// randomKey returns a key at or below the queried names.
func randomKey(pick func(int) int) string {
	key := "/skydns/test"
	labels := []string{"a", "b", "ab", "a-b", "c", "x"}
	switch pick(8) {
	case 0:
		key += "/dns/ns"
	case 1:
		key += "/dns/apex"
	}
	for range pick(4) {
		key += "/" + pickOne(pick, labels)
	}
	return key
}

func randomValue(pick func(int) int) string {
	if pick(12) == 0 {
		return pickOne(pick, []string{"", "{", "[]", `{"port":"80"}`, `{"port":65536}`, `{"host":"10.0.0.1:80"}`})
	}
	hosts := []string{"10.0.0.1", "10.0.0.2", "fd00::1", "", "a.test", "b.test", "ab.test.", "c.b.A.test", "a.b.test", "test", "www.example"}
	fields := []string{fmt.Sprintf(`"host":%q`, pickOne(pick, hosts))}
	for _, f := range []string{`"port":%d`, `"priority":%d`, `"weight":%d`, `"ttl":%d`, `"targetstrip":%d`} {
		if pick(3) == 0 {
			fields = append(fields, fmt.Sprintf(f, pick(4)))
		}
	}
	if pick(4) == 0 {
		fields = append(fields, fmt.Sprintf(`"text":"t%d"`, pick(3)))
	}
	if pick(3) == 0 {
		fields = append(fields, `"mail":true`)
	}
	if pick(4) == 0 {
		fields = append(fields, fmt.Sprintf(`"group":"g%d"`, pick(2)))
	}
	return "{" + strings.Join(fields, ",") + `,"owner":"nobody"}`
}

func changeKeys(m *model, x *index, pick func(int) int) {
	var batch []keyValue
	for range pick(6) {
		key, value := randomKey(pick), randomValue(pick)
		batch = append(batch, keyValue{key: []byte(key), value: []byte(value)})
	}
	apply := func() {
		for _, kv := range batch {
			m.values[string(kv.key)] = string(kv.value)
		}
		x.put(batch...)
	}
	switch pick(4) {
	case 0, 1:
		apply()
	case 2:
		for range pick(5) {
			key := randomKey(pick)
			delete(m.values, key)
			x.delete([]byte(key))
		}
	default: // a list that lacks some keys
		x.beginList()
		for key, value := range m.values {
			if len(batch) > 3 {
				delete(m.values, key)
				batch = batch[1:]
				continue
			}
			x.put(keyValue{key: []byte(key), value: []byte(value)})
		}
		apply()
		x.endList()
	}
}

// checkIndex checks that the index has the keys of the model and valid chunks.
func checkIndex(t *testing.T, x *index, m *model) {
	t.Helper()
	var have []string
	for _, c := range x.messages.Leaves() {
		if n := len(c.starts); n == 0 || n > ordered.MaxItems {
			t.Fatalf("got a chunk of %d keys, want 1 to %d", n, ordered.MaxItems)
		}
		for i := range c.starts {
			have = append(have, keyOf(x.prefix, []byte(c.path(i))))
			var got message
			c.message(i, &got)
			if got.group != "" && !c.grouped {
				t.Fatalf("chunk with %s: not marked as having groups", have[len(have)-1])
			}
			if want := m.read(have[len(have)-1]); len(m.values) < 100 && (got.text != want.Text || got.addr != want.ip || int(got.port) != want.Port) {
				t.Fatalf("%s: got %+v, want %+v", have[len(have)-1], got, want)
			}
		}
	}
	if !slices.IsSortedFunc(have, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }) {
		t.Fatalf("got keys %q, want them sorted", have)
	}
	if len(have) != len(m.values) || x.count() != len(have) {
		t.Fatalf("got %d keys and the count %d, want %d", len(have), x.count(), len(m.values))
	}
	for _, key := range have {
		if _, ok := m.values[key]; !ok {
			t.Fatalf("got the deleted key %s, want it missing", key)
		}
	}
}

// Chunks grow, split and join without losing keys.
func TestManyKeys(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := &model{values: map[string]string{}}
	h := handler(t, "etcd test")
	x := h.index
	put := func(n int) {
		var kvs []keyValue
		for range n {
			key := fmt.Sprintf("/skydns/test/k%d/k%d", random.IntN(50), random.IntN(100))
			value := fmt.Sprintf(`{"host":%q}`, netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(256)), byte(random.IntN(256))}))
			if n > 100 && random.IntN(300) == 0 {
				value = fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", random.IntN(60000)))
			}
			m.values[key] = value
			kvs = append(kvs, keyValue{key: []byte(key), value: []byte(value)})
		}
		x.put(kvs...)
	}
	for range 60 {
		switch random.IntN(6) {
		case 0:
			put(1500)
		case 1, 2:
			for range 20 {
				put(1 + random.IntN(3))
			}
		case 3:
			gone := fmt.Sprintf("/skydns/test/k%d/", random.IntN(50))
			for _, key := range slices.Sorted(maps.Keys(m.values)) {
				if strings.HasPrefix(key, gone) {
					delete(m.values, key)
					x.delete([]byte(key))
				}
			}
		case 4:
			var keys [][]byte
			for _, key := range slices.Sorted(maps.Keys(m.values)) {
				if random.IntN(3) == 0 {
					keys = append(keys, []byte(key))
					delete(m.values, key)
				}
			}
			x.delete(keys...)
		default:
			x.beginList()
			for _, key := range slices.Sorted(maps.Keys(m.values)) {
				if random.IntN(4) == 0 {
					delete(m.values, key)
					continue
				}
				x.put(keyValue{key: []byte(key), value: []byte(m.values[key])})
			}
			put(100)
			x.endList()
		}
		checkIndex(t, x, m)
		want := map[string]int{}
		for key := range m.values {
			want[strings.Split(key, "/")[3]]++
		}
		for i := range 50 {
			label := fmt.Sprintf("k%d", i)
			n := 0
			for r := x.below([]byte("test\x00" + label + "\x00")); r.step(); r.i++ {
				n++
			}
			if n != want[label] {
				t.Fatalf("keys below %s: got %d, want %d", label, n, want[label])
			}
		}
	}
	put(3000)
	for i := range 100 {
		for j := range 50 {
			if key := fmt.Sprintf("/skydns/test/k%d/k%d", j, i); i%10 > 0 { // a few of each chunk remain
				x.delete([]byte(key))
				delete(m.values, key)
			}
		}
	}
	checkIndex(t, x, m)
	size := 0
	for key, value := range m.values {
		size += len(key) + len(value)
	}
	// Two neighbouring leaves are half full, by items or by bytes.
	if n, most := len(x.messages.Leaves()), 1+2*x.count()/(ordered.MaxItems/2)+2*size/(ordered.MaxBytes/2); n > most {
		t.Errorf("leaves of %d keys and %d bytes: got %d, want at most %d", x.count(), size, n, most)
	}
	x.clear()
	if x.count() != 0 || x.synced() || x.below([]byte("test\x00")).nonEmpty() {
		t.Errorf("after clear: got %d keys, synced %v, want neither", x.count(), x.synced())
	}
}
