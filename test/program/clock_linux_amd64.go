package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// steppedClock is machine code in place of the vDSO's clock_gettime: the system call, and
// for CLOCK_REALTIME the addition of the seconds that follow the code.
var steppedClock = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x83, 0xff, 0x00, // cmp edi, CLOCK_REALTIME
	0x75, 0x0a, // jne the ret
	0x48, 0x8b, 0x0d, 0x05, 0x00, 0x00, 0x00, // mov rcx, the seconds
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
	0x90, // nop
}

// StepClock returns a function that steps the system's clock, as a process alone sees it.
func StepClock(t testing.TB, pid int) func(d time.Duration) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var begin, end int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, _ = fmt.Sscanf(line, "%x-%x", &begin, &end)
		}
	}

	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Skipf("opening the memory of the process: %v", err)
	}
	t.Cleanup(func() { mem.Close() })
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, begin); err != nil {
		t.Skipf("reading the vDSO: %v", err)
	}

	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		at := begin + int64(s.Value)
		step := func(d time.Duration) {
			t.Helper()
			// A stopped process reads no clock, and continues after the code has changed.
			defer syscall.Kill(pid, syscall.SIGCONT)
			for stopped := false; !stopped; stopped = !executes(pid, begin, end) {
				_ = syscall.Kill(pid, syscall.SIGCONT)
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				AwaitState(t, pid, "T")
			}

			code := binary.LittleEndian.AppendUint64(bytes.Clone(steppedClock), uint64(int64(d/time.Second)))
			if _, err := mem.WriteAt(code, at); err != nil {
				t.Skipf("writing the vDSO: %v", err)
			}
		}
		return step
	}
	t.Skip("the vDSO has no clock_gettime")
	return nil
}

// executes reports whether a thread of a stopped process is at an address of a range.
func executes(pid int, begin, end int64) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, file := range calls {
		text, _ := os.ReadFile(file)
		fields := strings.Fields(string(text)) // the last one is the program counter
		if len(fields) == 0 {
			continue
		}
		if at, err := strconv.ParseInt(fields[len(fields)-1], 0, 64); err == nil && at >= begin && at < end {
			return true
		}
	}
	return false
}

// AwaitState waits until all threads of the process have a state.
func AwaitState(t testing.TB, pid int, state string) {
	t.Helper()
	inState := func() bool {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, file := range stats {
			text, err := os.ReadFile(file)
			_, after, ok := strings.Cut(string(text), ") ")
			if err == nil && (!ok || !strings.HasPrefix(after, state)) {
				return false
			}
		}
		return len(stats) > 0
	}
	for deadline := time.Now().Add(time.Minute); !inState(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not in the state %s within a minute", pid, state)
		}
	}
}
