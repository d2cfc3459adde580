package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// checkVerification signs and publishes published, as a workflow does but with a key and a registry
// of this process, and runs the commands of docs/how-to/verify.md with own as the reader's build.
// Then a changed file and another key have to fail.
func checkVerification(t *testing.T, source, published, own string) {
	cosign := filepath.Join(source, "bin", "cosign")
	if _, err := os.Stat(cosign); err != nil {
		if os.Getenv("SEAMARK_TEST_COMPLETE") != "" {
			t.Fatal(err)
		}
		t.Skip("needs bin/cosign: make bin/cosign")
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://") + "/project"

	directory := t.TempDir()
	t.Setenv("PATH", filepath.Dir(cosign)+":"+os.Getenv("PATH"))
	environment := append(os.Environ(), "COSIGN_PASSWORD=", "VERSION=1.2.3-rc.1", "REGISTRY="+address,
		"SIGNER=--key cosign.pub --insecure-ignore-tlog")
	command := func(name string, args ...string) (string, error) {
		c := exec.Command(name, args...)
		c.Dir, c.Env = directory, environment
		out, err := c.CombinedOutput()
		return string(out), err
	}
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := command(name, args...); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}

	must("cosign", "generate-key-pair")
	must("make", "-C", source, "sign", "publish", "DIST="+published, "REGISTRY="+address, "VERSION=1.2.3-rc.1",
		"KEY="+filepath.Join(directory, "cosign.key"))
	must("ln", "-s", published, "published")
	must("ln", "-s", own, "dist")

	page := readFile(t, filepath.Join(source, "docs", "how-to"), "verify.md")
	parts := shell(string(page))
	if len(parts) != 5 {
		t.Fatalf("verify.md: got %d parts with commands, want 5", len(parts))
	}
	for _, part := range parts {
		must("sh", "-eu", "-c", part)
	}

	// Each part finds what it is there for. Bytes come first: signatures would fail before.
	forged := append(bytes.Clone(readFile(t, published, "images.txt")), '\n')
	if err := os.WriteFile(filepath.Join(published, "images.txt"), forged, 0o644); err != nil {
		t.Fatal(err)
	}
	fails := func(what string, i int) {
		t.Helper()
		if out, err := command("sh", "-eu", "-c", parts[i]); err == nil {
			t.Errorf("%s: these commands of verify.md succeed:\n%s\n%s", what, parts[i], out)
		}
	}
	fails("a changed file", 0)
	fails("a changed file", 4)

	must("rm", "cosign.key", "cosign.pub")
	must("cosign", "generate-key-pair")
	for i := range 4 {
		if i != 2 { // part 2 reads the statement, and checks no signature
			fails("another key", i)
		}
	}
}

// shell returns the commands of a page that need no network: its blocks sh.
func shell(page string) (parts []string) {
	for _, part := range strings.Split(page, "```sh\n")[1:] {
		commands, _, _ := strings.Cut(part, "```")
		parts = append(parts, commands)
	}
	return parts
}
