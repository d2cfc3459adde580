package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/orphans"
)

func TestMain(m *testing.M) { orphans.Main(m) }

// nft runs the program nft in the namespace of the calling thread, with one command a line.
func nft(t testing.TB, lines string) string {
	t.Helper()
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(lines)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s\n%s", err, out, lines)
	}
	return string(out)
}

// openNew opens a Kernel in a new network namespace, which the test's thread keeps until it ends.
func openNew(t testing.TB, changed func()) *Kernel {
	t.Helper()
	debian.Program(t, "nft")
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("network namespaces may not be made: %v", err)
	}
	k, err := Open(changed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func set(name string) Set { return Set{"inet", "filter", name} }

func element(name, ip string, timeout time.Duration) Element {
	return Element{Set: set(name), IP: netip.MustParseAddr(ip), Need: timeout, Timeout: timeout}
}

// left returns how long the kernel keeps an element.
func left(k *Kernel, e Element) time.Duration {
	_, left := k.look(e)
	return left
}

func add(t testing.TB, k *Kernel, elements ...Element) {
	t.Helper()
	for i, r := range k.Add(elements) {
		if got := left(k, elements[i]); r.Problem != None || got > r.Left || got < min(r.Left, elements[i].Need)-time.Minute/2 {
			t.Errorf("%v: got %v, and %v left, want it added", elements[i], r, got)
		}
	}
}

func TestAdd(t *testing.T) {
	k := openNew(t, nil)
	nft(t, `table inet filter {
		set v4 { type ipv4_addr; flags timeout; elements = { 192.0.2.9 }; }
		set v6 { type ipv6_addr; flags timeout; }
		set by4 { type ipv4_addr . ipv4_addr; flags timeout; }
		set by6 { typeof ip6 saddr . ip6 daddr; flags timeout; }
	}
	table bridge filter { set b { type ipv4_addr; flags timeout; }; }`)
	for name, want := range map[string]Key{"v4": IPv4, "v6": IPv6, "by4": ClientIPv4, "by6": ClientIPv6} {
		if got, p := k.Inspect(set(name)); got != want || p != None {
			t.Errorf("%s: got %v and %v, want %v", name, got, p, want)
		}
	}

	by4, by6 := element("by4", "192.0.2.1", time.Hour), element("by6", "2001:db8::1", time.Hour)
	by4.Client, by6.Client = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	bridge := element("b", "192.0.2.1", time.Hour)
	bridge.Set.Family = "bridge"
	add(t, k, element("v4", "192.0.2.1", time.Minute), element("v6", "2001:db8::1", time.Hour), by4, by6, bridge)
	shown := nft(t, "list ruleset")
	for _, want := range []string{"192.0.2.1 timeout 1m", "2001:db8::1 timeout 1h", "10.0.0.1 . 192.0.2.1 timeout 1h", "fd00::1 . 2001:db8::1 timeout 1h"} {
		if !strings.Contains(shown, want) {
			t.Errorf("got no %q in\n%s", want, shown)
		}
	}

	// One that is there with enough time left stays as it is. One with less, known or not, gets more.
	e := element("v4", "192.0.2.1", 30*time.Second)
	add(t, k, e)
	if got := left(k, e); got <= 30*time.Second {
		t.Errorf("an element with a minute left, needed for 30 s: got %v, want it unchanged", got)
	}
	add(t, k, element("v4", "192.0.2.1", 5*time.Minute))
	if got := left(k, e); got < 4*time.Minute {
		t.Errorf("an element with a minute left, needed for 5: got %v, want it renewed", got)
	}
	e = element("v4", "192.0.2.1", 10*time.Minute)
	e.Renew = true
	add(t, k, e)
	if got := left(k, e); got < 9*time.Minute {
		t.Errorf("an element that is renewed: got %v, want 10m", got)
	}
	nft(t, "flush set inet filter v4")
	add(t, k, e)
	if got := left(k, e); got < 9*time.Minute {
		t.Errorf("an element that was flushed: got %v, want 10m", got)
	}

	// One without a timeout is an administrator's.
	nft(t, "add element inet filter v4 { 192.0.2.9 }")
	static := element("v4", "192.0.2.9", time.Minute)
	for _, static.Renew = range []bool{false, true} {
		add(t, k, static)
		if out := nft(t, "list set inet filter v4"); strings.Contains(out, "192.0.2.9 timeout") {
			t.Errorf("renew %v: got a timeout for an element that had none:\n%s", static.Renew, out)
		}
	}
}

// A set that cannot have an element does not keep others of the same call from theirs.
func TestProblems(t *testing.T) {
	k := openNew(t, nil)
	nft(t, `table inet filter {
		set good { type ipv4_addr; flags timeout; elements = { 192.0.2.7 timeout 1m }; }
		set small { type ipv4_addr; flags timeout; size 2; }
		set v6 { type ipv6_addr; flags timeout; }
		set forever { type ipv4_addr; }
		set ranges { type ipv4_addr; flags timeout, interval; }
		set ports { type inet_service; flags timeout; }
		set mixed { type ipv4_addr . inet_service; flags timeout; }
		map pairs { type ipv4_addr : inet_service; }
	}`)
	for name, want := range map[string]Problem{"none": NoSet, "forever": NoTimeout, "ranges": Interval, "ports": WrongKey, "mixed": WrongKey, "pairs": IsMap} {
		if _, got := k.Inspect(set(name)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if _, got := k.Inspect(Set{"ip", "none", "none"}); got != NoSet {
		t.Errorf("no table: got %v, want %v", got, NoSet)
	}

	elements := []Element{
		element("small", "192.0.2.1", time.Minute), element("good", "192.0.2.7", time.Hour), element("none", "192.0.2.1", time.Minute),
		element("small", "192.0.2.2", time.Minute), element("v6", "192.0.2.3", time.Minute), element("small", "192.0.2.3", time.Minute),
		element("forever", "192.0.2.3", time.Minute), element("good", "192.0.2.8", time.Hour),
	}
	want := []Problem{None, None, NoSet, None, problemOf(unix.EINVAL), Full, problemOf(unix.EINVAL), None}
	var got []Problem
	for _, r := range k.Add(elements) {
		got = append(got, r.Problem)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, e := range elements {
		if present, _ := k.look(e); present != (want[i] == None) {
			t.Errorf("%v: got present %v, want %v", e, present, want[i] == None)
		}
	}
}

// The most elements of one call, all new, all renewed, and all there already without Renew.
func TestAddMost(t *testing.T) {
	k := openNew(t, nil)
	nft(t, "table inet filter { set v6 { type ipv6_addr; flags timeout; }; }")
	for i, timeout := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
		var all []Element
		for n := range MaxElements {
			e := element("v6", fmt.Sprintf("2001:db8::%x", n+1), timeout)
			e.Renew = i == 1
			all = append(all, e)
		}
		add(t, k, all...)
		for _, e := range all {
			if got := left(k, e); got < timeout-30*time.Second {
				t.Fatalf("call %d: got %v left of %v, want %v", i, got, e, timeout)
			}
		}
	}
}

// Transactions of others are noticed, and the own ones are not.
func TestChanges(t *testing.T) {
	noticed := make(chan struct{}, 100)
	k := openNew(t, func() { noticed <- struct{}{} })
	nft(t, "table inet filter { set v4 { type ipv4_addr; flags timeout; }; }")
	<-noticed
	for range 50 {
		add(t, k, element("v4", "192.0.2.1", time.Minute))
		nft(t, "flush set inet filter v4")
		<-noticed
	}
	if got := k.Changes(); got != 51 {
		t.Errorf("got %d changes, want 51", got)
	}
	nft(t, "flush ruleset")
	<-noticed
	if got := k.Add([]Element{element("v4", "192.0.2.1", time.Minute)}); got[0].Problem != NoSet {
		t.Errorf("after flush ruleset: got %v, want %v", got[0], NoSet)
	}
}

func TestCheck(t *testing.T) {
	for s, want := range map[Set]string{
		{"inet", "filter", "agents"}:                 "",
		{"arp", "filter", "agents"}:                  `want family inet, ip, ip6, bridge, netdev, got "arp"`,
		{"inet", "", "agents"}:                       `want a name of 1 to 255 bytes, got ""`,
		{"inet", "filter", strings.Repeat("a", 256)}: fmt.Sprintf("want a name of 1 to 255 bytes, got %q", strings.Repeat("a", 256)),
	} {
		if err := s.Check(); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v: got %v, want %s", s, err, want)
		}
	}
}

// Without the capability the error says so.
func TestNoPermission(t *testing.T) {
	if p := explain(unix.EPERM); !errors.Is(p, NoPermission) {
		t.Errorf("got %v, want %v", p, NoPermission)
	}
}

func BenchmarkAdd(b *testing.B) {
	k := openNew(b, nil)
	nft(b, "table inet filter { set v4 { type ipv4_addr; flags timeout; }; }")
	for _, n := range []int{1, 16, MaxElements} {
		for _, renew := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/renew=%v", n, renew), func(b *testing.B) {
				ip := netip.MustParseAddr("10.0.0.0")
				timeout := time.Hour
				all := make([]Element, n)
				for b.Loop() {
					if timeout += time.Second; renew {
						ip = netip.MustParseAddr("11.0.0.0")
					}
					for i := range all {
						ip = ip.Next()
						all[i] = Element{Set: set("v4"), IP: ip, Need: timeout, Timeout: timeout, Renew: renew}
					}
					if p := k.Add(all); p[0].Problem != None {
						b.Fatal(p[0])
					}
				}
			})
		}
	}
}

// inNamespace calls f on a thread in a namespace.
func inNamespace(namespace *os.File, f func()) {
	defer namespace.Close()
	runtime.LockOSThread() // never unlocked
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
	f()
}
