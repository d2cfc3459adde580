package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/follow"
)

// On a full disk the old snapshot stays, and the new one is written once there is space.
func TestSnapshotFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	f, log := newSnapshotFile(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	f.path = filepath.Join(disk, "snapshot")
	if err := f.write(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(disk, "fill")
	if err := os.WriteFile(fill, make([]byte, 64<<10), 0o600); err == nil {
		t.Fatal("writing 64 KB to a disk of 16 KB: got no error")
	}
	f.source.Put(cluster.Services, clusterIP("shop", "new", "", "10.96.0.2"))
	f.Stop()
	if got, err := os.ReadFile(f.path); err != nil || !bytes.Equal(got, old) {
		t.Errorf("full disk: got a snapshot of %d bytes, error %v, want the old one of %d bytes", len(got), err, len(old))
	}
	if names, _ := filepath.Glob(disk + "/*"); len(names) != 2 {
		t.Errorf("full disk: got files %q, want the snapshot and the one that fills the disk", names)
	}
	if got := log.String(); !strings.Contains(got, "no space left on device") || !strings.Contains(got, "free space in the directory of the file") {
		t.Errorf("full disk: got log\n%s\nwant the error and what to do", got)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	f.task = follow.Go(f.run)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		services := 0
		s, err := readFile(f.path)
		if err == nil {
			err = s.Each(func(kind cluster.Kind, _ cluster.Object) {
				if kind == cluster.Services {
					services++
				}
			})
		}
		if err == nil && services == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("with space again: got %d Services and error %v, want a snapshot with two", services, err)
		}
	}
	f.Stop()
}
