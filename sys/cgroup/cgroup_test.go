package cgroup

import (
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
		{"both, the second with memory", map[string]string{
			"proc/self/cgroup": "1:name=systemd:/a\n0::/a\n", "sys/fs/cgroup/a/memory.max": "7000\n"}, 7000},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "0::/a\nx\n", "sys/fs/cgroup/a/memory.max": "-3\n", "sys/fs/cgroup/memory.max": "plenty\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		limit, ok := MemoryLimit(root)
		if ok != (tt.want > 0) || ok && limit != tt.want {
			t.Errorf("%s: got %d %v, want %d", tt.name, limit, ok, tt.want)
		}
	}
}

// A quota of CPU time is a limit in processors; the lowest of a group and the groups above
// it counts.
func TestCPULimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  float64 // 0: none
	}{
		{"not Linux", nil, 0},
		{"a container with half a processor", map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "50000 100000\n",
			"sys/fs/cgroup/kubepods/pod1/cpu.max": "max 100000\n"}, 0.5},
		{"a pod with less than its container", map[string]string{
			"proc/self/cgroup": "0::/pod1/c1\n", "sys/fs/cgroup/pod1/c1/cpu.max": "300000 100000\n",
			"sys/fs/cgroup/pod1/cpu.max": "150000 100000\n"}, 1.5},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, 0},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "25000\n",
			"sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"}, 0.25},
		{"version 1 without a limit", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 0},
		{"nonsense", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "5000\n", "sys/fs/cgroup/cpu.max": "1 0\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range tt.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		limit, ok := CPULimit(root)
		if ok != (tt.want > 0) || ok && limit != tt.want {
			t.Errorf("%s: got %v %v, want %v", tt.name, limit, ok, tt.want)
		}
	}
}
