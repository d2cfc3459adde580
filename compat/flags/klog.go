package flags

import (
	"log/slog"

	"github.com/spf13/pflag"
)

// Klog holds the flags of klog, the logging library of Kubernetes' programs. Only
// -v has an effect.
type Klog struct {
	set       *pflag.FlagSet
	verbosity int
}

// debugVerbosity is the least value of -v that enables debug messages.
const debugVerbosity = 4

// klogIgnored lists the flags of klog without an effect.
var klogIgnored = []struct {
	name, value string // value is the default
	isSwitch    bool   // a boolean flag
}{
	{"logtostderr", "true", true},
	{"alsologtostderr", "false", true},
	{"add-dir-header", "false", true},
	{"one-output", "false", true},
	{"skip-headers", "false", true},
	{"skip-log-headers", "false", true},
	{"legacy-stderr-threshold-behavior", "true", true},
	{"log-backtrace-at", "", false},
	{"log-dir", "", false},
	{"log-file", "", false},
	{"log-file-max-size", "", false},
	{"log-flush-frequency", "", false},
	{"stderrthreshold", "", false},
	{"alsologtostderrthreshold", "", false},
	{"vmodule", "", false},
}

// AddKlog adds klog's flags to f.
func AddKlog(f *pflag.FlagSet) *Klog {
	k := &Klog{set: f}
	f.IntVarP(&k.verbosity, "v", "v", 0, "verbosity `LEVEL` of the log: 4 and above includes debug messages")
	for _, flag := range klogIgnored {
		if flag.isSwitch {
			f.Bool(flag.name, flag.value == "true", "")
		} else {
			f.String(flag.name, flag.value, "")
		}
		_ = f.MarkHidden(flag.name)
	}
	return k
}

// Level returns the log level that -v selects.
func (k *Klog) Level() slog.Level {
	if k.verbosity >= debugVerbosity {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Ignored returns the flags without an effect that are not at their defaults.
func (k *Klog) Ignored() (names []string) {
	for _, flag := range klogIgnored {
		if k.set.Lookup(flag.name).Value.String() != flag.value {
			names = append(names, "--"+flag.name)
		}
	}
	return names
}

// Given returns all flags of klog that the command line sets.
func (k *Klog) Given() (names []string) {
	if k.set.Changed("v") {
		names = []string{"--v"}
	}
	for _, flag := range klogIgnored {
		if k.set.Changed(flag.name) {
			names = append(names, "--"+flag.name)
		}
	}
	return names
}
