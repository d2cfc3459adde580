package dnstest

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
)

var coredns = flag.String("coredns", "", "the path of CoreDNS's program, which answers the scripts with coredns: same in Seamark's place")

var update = flag.Bool("update", false, "write what the server answers into the scripts; look at the difference before you keep it")

// Every script of the corpus, against a folder of manifests.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no scripts in testdata/script")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			Run(t, Env{Update: *update, CoreDNS: *coredns}, file)
		})
	}
}
