package nftables

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// serve starts Serve in the namespace of the thread, and returns the other end of its connection.
func serve(t *testing.T, sets ...Set) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	go inNamespace(namespace, func() {
		defer close(done)
		Serve(os.NewFile(uintptr(fds[0]), "server"), sets)
	})
	f := os.NewFile(uintptr(fds[1]), "client")
	t.Cleanup(func() {
		_ = f.Close()
		<-done
	})
	return f
}

func TestRemote(t *testing.T) {
	k := openNew(t, nil)
	nft(t, `table inet filter {
		set v4 { type ipv4_addr; flags timeout; size 3; }
		set v6 { type ipv6_addr; flags timeout; }
		set by4 { type ipv4_addr . ipv4_addr; flags timeout; }
		set by6 { type ipv6_addr . ipv6_addr; flags timeout; }
		set secret { type ipv4_addr; flags timeout; }
	}`)
	sets := []Set{set("v4"), set("v6"), set("by4"), set("by6"), set("none")}
	r := NewRemote(serve(t, sets...), sets)
	for name, want := range map[string]Key{"v4": IPv4, "by6": ClientIPv6} {
		if got, p := r.Inspect(set(name)); got != want || p != None {
			t.Errorf("%s: got %v and %v, want %v", name, got, p, want)
		}
	}
	for name, want := range map[string]Problem{"none": NoSet, "secret": NotListed} {
		if _, got := r.Inspect(set(name)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}

	by4, by6 := element("by4", "192.0.2.1", time.Hour), element("by6", "2001:db8::1", time.Hour)
	by4.Client, by6.Client = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	elements := []Element{element("v4", "192.0.2.1", time.Minute), element("secret", "192.0.2.1", time.Minute), element("none", "192.0.2.1", time.Minute),
		element("v6", "2001:db8::1", time.Hour), by4, by6, element("v4", "192.0.2.2", time.Minute), element("v4", "192.0.2.3", time.Minute), element("v4", "192.0.2.4", time.Minute)}
	want := []Problem{None, NotListed, NoSet, None, None, None, None, None, Full}
	var got []Problem
	for _, result := range r.Add(elements) {
		got = append(got, result.Problem)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, e := range elements {
		if present, _ := k.look(e); present != (want[i] == None) {
			t.Errorf("%v: got present %v, want %v", e, present, want[i] == None)
		}
	}
	var most []Element
	for i := range MaxElements {
		most = append(most, element("v6", fmt.Sprintf("2001:db8:1::%x", i+1), time.Hour))
	}
	for i, result := range r.Add(most) {
		if result.Problem != None || result.Left != time.Hour {
			t.Fatalf("element %d of a full message: got %v, want it added for an hour", i, result)
		}
	}

	// A change of others is known, once for those that follow before the next request.
	before := r.Changes()
	nft(t, "flush set inet filter v4")
	for deadline := time.Now().Add(time.Minute); r.Changes() == before; {
		if time.Now().After(deadline) {
			t.Fatal("the change is not known after a minute")
		}
		time.Sleep(time.Millisecond)
	}
	if present, _ := k.look(elements[0]); present {
		t.Fatal("got an element after the flush")
	}
	if got := r.Add(elements[:1]); got[0].Problem != None {
		t.Errorf("after a flush: got %v, want the element added", got[0])
	}
}

// Anything that a process sends adds elements to the listed sets, or ends the connection.
func TestServeAnything(t *testing.T) {
	k := openNew(t, nil)
	nft(t, "table inet filter { set v4 { type ipv4_addr; flags timeout; elements = { 192.0.2.9 }; }; set secret { type ipv4_addr; flags timeout; }; }")
	r := rand.New(rand.NewPCG(1, 2))
	valid := appendElement([]byte{addRequest, 0, 0, 0, 1}, element("v4", "192.0.2.9", time.Minute), 0)
	ended := 0
	for range 300 {
		f := serve(t, set("v4"))
		message := slices.Clone(valid)
		for range 1 + r.IntN(4) {
			message[r.IntN(len(message))] = byte(r.Uint32())
		}
		message = message[:1+r.IntN(len(message))]
		if _, err := f.Write(message); err != nil {
			t.Fatal(err)
		}
		if n, err := f.Read(make([]byte, maxMessage)); n == 0 || err != nil {
			ended++
		}
		_ = f.Close()
	}
	if ended < 100 {
		t.Errorf("got %d connections ended of 300, want most", ended)
	}
	if out := nft(t, "list set inet filter secret"); strings.Contains(out, "elements") {
		t.Errorf("a set that is not listed: got\n%s", out)
	}
	if _, left := k.look(element("v4", "192.0.2.9", 0)); left != MaxTimeout {
		t.Errorf("an element without a timeout: got %v left, want it unchanged", left)
	}
}

// Without another process there is a problem and no wait.
func TestRemoteGone(t *testing.T) {
	sets := []Set{set("v4")}
	if got := NewRemote(nil, nil).Add([]Element{element("v4", "192.0.2.1", time.Minute)}); got[0].Problem != NotListed {
		t.Errorf("without sets: got %v, want %v", got[0].Problem, NotListed)
	}
	f := serve(t, sets...)
	r := NewRemote(f, sets)
	_ = f.Close()
	if _, got := r.Inspect(sets[0]); got != Gone {
		t.Errorf("a closed connection: got %v, want %v", got, Gone)
	}
	if got := r.Add([]Element{element("v4", "192.0.2.1", time.Minute)}); got[0].Problem != Gone {
		t.Errorf("a closed connection: got %v, want %v", got[0].Problem, Gone)
	}
}

// A process that hangs holds a request for replyTimeout, and none in the next second. A reply that is late is
// not taken for that to another request.
func TestRemoteHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, other := net.Pipe()
		sets := []Set{set("v4"), set("v6")}
		r := newRemote(conn, sets)
		defer conn.Close()
		inspect := func(what string, s Set, wantKey Key, wantProblem Problem, wantWait time.Duration) {
			t.Helper()
			begun := time.Now()
			key, p := r.Inspect(s)
			if waited := time.Since(begun); key != wantKey || p != wantProblem || waited != wantWait {
				t.Errorf("%s: got %v and %v after %v, want %v and %v after %v", what, key, p, waited, wantKey, wantProblem, wantWait)
			}
		}
		// reply sends a key as the reply to a request.
		reply := func(request []byte, key Key) {
			if _, err := other.Write([]byte{request[0] + 1, request[1], request[2], request[3], request[4], byte(key), 0, 0}); err != nil {
				t.Error(err)
			}
		}
		receive := func() []byte {
			request := make([]byte, maxMessage)
			n, err := other.Read(request)
			if err != nil {
				t.Error(err)
			}
			return request[:n]
		}

		inspect("a process that reads nothing", sets[0], NoKey, Gone, replyTimeout)
		inspect("within a second", sets[0], NoKey, Gone, 0)
		if got := r.Add([]Element{element("v4", "192.0.2.1", time.Minute)}); got[0].Problem != Gone {
			t.Errorf("within a second: got %v, want %v", got[0].Problem, Gone)
		}

		time.Sleep(retryInterval)
		requests := make(chan []byte, 1)
		go func() { requests <- receive() }()
		inspect("a process that replies late", sets[0], NoKey, Gone, replyTimeout)
		reply(<-requests, IPv4)

		time.Sleep(retryInterval)
		go func() { reply(receive(), IPv6) }()
		inspect("the next request", sets[1], IPv6, None, 0)
	})
}

func TestParseSets(t *testing.T) {
	got, err := ParseSets("inet/filter/a,ip6/t/b,inet/filter/a")
	if want := []Set{{"inet", "filter", "a"}, {"ip6", "t", "b"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v and %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"inet/filter":   `want FAMILY/TABLE/SET, got "inet/filter"`,
		"arp/filter/a":  `arp/filter/a: want family inet, ip, ip6, bridge, netdev, got "arp"`,
		"inet/filter/,": `inet/filter/: want a name of 1 to 255 bytes, got ""`,
	} {
		if _, err := ParseSets(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
