package cmd

import (
	"os"
	"runtime"
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
		if got := softLimit(tt.limit, mappedFiles(root)); got != tt.want {
			t.Errorf("limit %d, status %q: got soft limit %d, want %d", tt.limit, tt.status, got, tt.want)
		}
	}
	if runtime.GOOS == "linux" {
		if got := mappedFiles(os.DirFS("/")); got < mb {
			t.Errorf("mappedFiles: got %d bytes, want at least 1 MB of this test", got)
		}
	}
}
