package cmd

import (
	"os"
	"runtime"
	"testing"
	"testing/fstest"
)

// The limit is the lowest of a group and the groups above it, in both versions of
// control groups, for any part of the tree that a container sees.
func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64 // 0: none
	}{
		{"not Linux", nil, 0},
		{"a group of its own", map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "178257920\n",
			"sys/fs/cgroup/kubepods/pod1/memory.max": "max\n"}, 178257920},
		{"a pod with less than its container", map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "300\n",
			"sys/fs/cgroup/kubepods/pod1/memory.max": "200\n"}, 200},
		{"a container's namespace", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 1000000},
		{"a path that is not visible", map[string]string{
			"proc/self/cgroup": "0::/../../kubepods/c1\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 1000000},
		{"no limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/c1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "178257920\n"}, 178257920},
		{"version 1 without a limit", map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"both, of which the second has memory", map[string]string{
			"proc/self/cgroup": "1:name=systemd:/a\n0::/a\n", "sys/fs/cgroup/a/memory.max": "7000\n"}, 7000},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "0::/a\nx\n", "sys/fs/cgroup/a/memory.max": "-3\n", "sys/fs/cgroup/memory.max": "plenty\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		limit, ok := memoryLimit(root)
		if ok != (tt.want > 0) || ok && limit != tt.want {
			t.Errorf("%s: got %d %v, want %d", tt.name, limit, ok, tt.want)
		}
	}
}

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
