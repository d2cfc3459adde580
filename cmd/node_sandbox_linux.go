package cmd

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"syscall"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/sandbox"
)

// restrict reduces the privileges of the calling thread, as -sandbox says.
func restrict(mode string, log *slog.Logger) error {
	if mode == nodecache.SandboxOff {
		return nil
	}
	err := sandbox.Restrict()
	switch {
	case err == nil:
		return nil
	case mode == nodecache.SandboxRequired:
		return fmt.Errorf("-sandbox=%s: %w", mode, err)
	}

	// A container runtime or a kernel may refuse a step. Pods need DNS all the same.
	log.Warn("Process that answers queries keeps privileges that it does not need", "error", err)
	return nil
}

// restricted is the variable of a process that executeRestricted has executed.
const restricted = "SEAMARK_RESTRICTED"

// executable is the program of this process.
const executable = "/proc/self/exe"

// executeRestricted executes the program again with the privileges that -sandbox leaves, for a
// process that has no supervisor to start it with them: all threads of a program have those of the
// thread that has executed it. In the new program it does nothing.
func (p *program) executeRestricted(mode string, klog *flags.Klog) error {
	if os.Getenv(restricted) != "" {
		// A variable does not show that it is true.
		if has := sandbox.Current(); mode == nodecache.SandboxRequired && !(has.NoNewPrivs && has.Seccomp) {
			return fmt.Errorf("-sandbox=%s: the environment has the variable %s, which is for the program's own use: unset it",
				mode, restricted)
		}
		return os.Unsetenv(restricted) // commands that it runs are other programs
	}
	if mode == nodecache.SandboxOff {
		return nil
	}

	out := newOutput(p.err)
	log := server.NewLog(out, klog.Level())
	if _, err := os.Stat(executable); err != nil && mode != nodecache.SandboxRequired {
		log.Warn("Process that answers queries keeps privileges that it does not need", "error", err)
		out.Stop()
		return nil
	}

	// A signal that this program has received would be lost.
	p.signals.Release()
	if p.signals.Context.Err() != nil {
		return nil // the server does not start
	}

	runtime.LockOSThread() // never unlocked
	err := restrict(mode, log)
	out.Stop()
	if err != nil {
		return err
	}
	err = syscall.Exec(executable, os.Args, append(os.Environ(), restricted+"=1"))
	return fmt.Errorf("executing the program without privileges: %w", err)
}
