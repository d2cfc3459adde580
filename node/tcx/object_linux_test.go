package tcx

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/debian"
)

// The objects are those that the source makes, with the version of clang that has made
// them.
func TestObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	out, err := exec.Command(debian.Program(t, "clang"), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("object/clang_version")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`clang version (\d+)`).FindSubmatch(out)
	if version == nil || string(version[1]) != strings.TrimSpace(string(recorded)) {
		t.Skipf("needs clang %s, which has made the objects: another version makes other ones", recorded)
	}
	debian.Program(t, "llvm-strip")
	dir := t.TempDir()
	if text, err := exec.Command("program/build", dir).CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, text)
	}
	for _, name := range []string{"capture_el.o", "capture_eb.o"} {
		got, err := os.ReadFile(filepath.Join("object", name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("object/%s is not what program/capture.c makes: run go generate ./node/tcx", name)
		}
	}
}
