package memory

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

// The pages of the program's file are not available to the heap, which has half of the
// limit at least.
func TestSoftLimit(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		limit  int64
		status string
		want   int64
	}{
		{1000 * mb, "VmRSS:\t  30000 kB\nRssAnon:\t    5000 kB\nRssFile:\t   20480 kB\nRssShmem:\t       0 kB\n", 880 * mb},
		{50 * mb, "RssFile:\t   10240 kB\n", 35 * mb},
		{50 * mb, "RssFile:\t   40960 kB\n", 25 * mb},
		{50 * mb, "RssFile:\t   nonsense\n", 45 * mb},
		{50 * mb, "VmRSS:\t  30000 kB\n", 45 * mb}, // Linux before 4.5
	} {
		root := fstest.MapFS{"proc/self/status": &fstest.MapFile{Data: []byte(tt.status)}}
		if got := softLimit(tt.limit, size(root, "proc/self/status", "RssFile")); got != tt.want {
			t.Errorf("limit %d, status %q: got soft limit %d, want %d", tt.limit, tt.status, got, tt.want)
		}
	}
	if runtime.GOOS == "linux" {
		if got := size(os.DirFS("/"), "proc/self/status", "RssFile"); got < mb {
			t.Errorf("got %d bytes of files, want at least 1 MB of this test", got)
		}
	}
}

// The total is the least of the control group's limit and GOMEMLIMIT, or the machine's memory.
// Go's soft limit follows the control group unless GOMEMLIMIT is set.
func TestDetect(t *testing.T) {
	const mb = 1 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, tt := range []struct {
		name        string
		group       string
		environment int64 // 0: none
		total       int64
		source      Source
		soft        int64
	}{
		{"a group", "104857600\n", 0, 90 * mb, FromGroup, 90 * mb},
		{"a group and a lower GOMEMLIMIT", "104857600\n", 50 * mb, 50 * mb, FromEnvironment, 50 * mb},
		{"a group and a higher GOMEMLIMIT", "104857600\n", 500 * mb, 90 * mb, FromGroup, 500 * mb},
		{"GOMEMLIMIT alone", "max\n", 50 * mb, 50 * mb, FromEnvironment, 50 * mb},
		{"GOMEMLIMIT of more than the machine", "max\n", 100 << 30, 900 * mb, FromMachine, 100 << 30},
		{"nothing", "max\n", 0, 900 * mb, FromMachine, math.MaxInt64},
		{"a group with more than the machine", "10737418240\n", 0, 900 * mb, FromMachine, math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", "")
		if tt.environment > 0 {
			t.Setenv("GOMEMLIMIT", "set")
			debug.SetMemoryLimit(tt.environment)
		}
		b := Detect(fstest.MapFS{
			"proc/self/cgroup":         {Data: []byte("0::/\n")},
			"sys/fs/cgroup/memory.max": {Data: []byte(tt.group)},
			"proc/meminfo":             {Data: []byte("MemTotal:        1024000 kB\nMemFree: 10 kB\n")},
		})
		if got := debug.SetMemoryLimit(-1); b.Total()/mb != tt.total/mb || b.source != tt.source || got/mb != tt.soft/mb {
			t.Errorf("%s: got %d MB from %s and soft limit %d, want %d MB from %s and %d",
				tt.name, b.Total()/mb, b.source, got, tt.total/mb, tt.source, tt.soft)
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if b := Detect(fstest.MapFS{}); b != nil {
		t.Errorf("not Linux: got %d bytes, want no budget", b.Total())
	}
}

// The page has a row for each part, with its percentages.
func TestPartsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/memory.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		row := fmt.Sprintf(`(?m)^\| .%s. \| %d %%[^|]* \| (%d %%|the same \|)`, r.name, r.min, r.max)
		if !regexp.MustCompile(row).Match(page) {
			t.Errorf("the page has no row that matches %s", row)
		}
	}
}
