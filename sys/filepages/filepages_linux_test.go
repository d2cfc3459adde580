package filepages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Only mappings whose pages are all those of the program's file can be released.
func TestParse(t *testing.T) {
	const head, tail = "%s %s 00000000 fe:00 12                         %s\n", "Size:  64 kB\nRss:   64 kB\nAnonymous:  %d kB\nVmFlags: rd mr\n"
	mapping := func(addresses, permissions, file string, anonymous int) string {
		return fmt.Sprintf(head+tail, addresses, permissions, file, anonymous)
	}
	text := mapping("400000-500000", "r-xp", "/bin/a b", 0) +
		mapping("500000-600000", "r--p", "/bin/a b", 0) +
		mapping("600000-700000", "rw-p", "/bin/a b", 0) + // variables
		mapping("700000-800000", "r--p", "/bin/a b", 16) + // relocated
		mapping("800000-900000", "r-xp", "/lib/libc.so", 0) +
		mapping("900000-a00000", "r-xp", "/bin/a b (deleted)", 0) +
		mapping("a00000-b00000", "rw-p", "", 0) +
		mapping("b00000-c00000", "r--s", "/bin/a b", 0) +
		mapping("7f0000000000-7f0000001000", "r-xp", "[vdso]", 0)
	for file, want := range map[string]Pages{
		"/bin/a b":           {{0x400000, 0x500000}, {0x500000, 0x600000}},
		"/bin/a b (deleted)": {{0x900000, 0xa00000}},
		"/bin/c":             nil,
	} {
		if got := parse([]byte(text), file); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %x, want %x", file, got, want)
		}
	}
}

// The pages of this test are found, and it continues without them.
func TestFind(t *testing.T) {
	code := reflect.ValueOf(TestFind).Pointer()
	pages := Find()
	if !slices.ContainsFunc(pages, func(m mapping) bool { return m.from <= code && code < m.to }) {
		t.Errorf("got %x, want a mapping with the function at %x", pages, code)
	}
	pages.Release()
}

// Released pages of a mapped file are not resident, and are read from the file again.
func TestRelease(t *testing.T) {
	const count = 64
	size := os.Getpagesize()
	file := filepath.Join(t.TempDir(), "file")
	want := bytes.Repeat([]byte("seamark\n"), count*size/8)
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	from := reflect.ValueOf(b).Pointer()
	pages := Pages{{from, from + uintptr(len(b))}}
	for range 2 {
		if !bytes.Equal(b, want) {
			t.Fatal("the mapping has other bytes than the file")
		}
		if n := present(t, from, count); n == 0 {
			t.Fatalf("no page of %d is resident before the release", count)
		}
		pages.Release()
		if n := present(t, from, count); n != 0 {
			t.Errorf("%d pages are resident after the release, want 0", n)
		}
	}
}

// present returns how many of count pages from an address on are resident.
func present(t *testing.T, from uintptr, count int) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 8*count)
	if _, err := f.ReadAt(b, int64(from)/int64(os.Getpagesize())*8); err != nil {
		t.Fatalf("reading /proc/self/pagemap: %v", err)
	}
	for ; len(b) > 0; b = b[8:] {
		n += int(binary.NativeEndian.Uint64(b) >> 63)
	}
	return n
}
