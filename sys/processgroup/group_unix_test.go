//go:build unix

package processgroup

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// A group exists as long as it has a process, also without its leader.
func TestExistsUntilLastProcessEnds(t *testing.T) {
	for command, leaderEnds := range map[string]bool{"exec cat": false, "cat <&3 &": true} {
		if leaderEnds && testing.Short() {
			continue // process 1 may take more than a second to reap cat
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "sh", "-c", "exec 3<&0; "+command)
		c.Stdin = read
		Set(c)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_ = read.Close()

		ended := make(chan error)
		go func() { ended <- c.Wait() }()
		if leaderEnds {
			err = <-ended
		}
		if !Exists(c.Process.Pid) {
			t.Errorf("%s: got no group while cat runs, want one", command)
		}
		_ = write.Close() // ends cat
		if !leaderEnds {
			err = <-ended
		}
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}

		for end := time.Now().Add(time.Minute); Exists(c.Process.Pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: got a group after cat has ended, want none", command)
			}
		}
	}
}
