// Package target runs a fuzz target of Go's package testing on inputs from elsewhere, for which
// testing itself has no interface. It is compiled into the programs that command oss-fuzz builds.
//
// It takes the place of the dependencies that go test gives to testing.MainStart: as the coordinator
// of fuzzing it learns the types of the target's arguments and the seeds, as a worker it gets the
// function that runs an input. So targets are built as they are, with all files of their tests.
package target

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"testing"
	"time"
)

// A Target is a fuzz target that runs.
type Target struct {
	// Seeds are the inputs that the target has added, in the encoding of Run.
	Seeds [][]byte

	types  []reflect.Type
	inputs chan entry
	errs   chan error
}

// Start starts the fuzz target with a name. It can be called once in a process. The target's output
// is discarded.
func Start(targets []testing.InternalFuzzTarget, name string) (*Target, error) {
	t := &Target{inputs: make(chan entry), errs: make(chan error)}
	begun, ended := make(chan struct{}), make(chan int, 1)
	d := &deps{target: t, begun: begun}

	testing.Init()
	run := func(args ...string) int {
		args = append(args, "-test.fuzz=^"+regexp.QuoteMeta(name)+"$", "-test.run=^$", "-test.fuzzcachedir=/")
		if err := flag.CommandLine.Parse(args); err != nil {
			return 2
		}
		return testing.MainStart(d, nil, nil, targets, nil).Run()
	}

	if code := run(); code != 0 || t.types == nil {
		return nil, fmt.Errorf("%s does not start or is skipped: exit code %d", name, code)
	}
	go func() { ended <- run("-test.fuzzworker") }()
	select {
	case <-begun:
		return t, nil
	case code := <-ended:
		return nil, fmt.Errorf("%s ends at once: exit code %d", name, code)
	}
}

// Run runs the target on the arguments that data encode, and returns the messages of a failure. A
// panic ends the process.
func (t *Target) Run(data []byte) error {
	t.inputs <- entry{Values: decode(data, t.types), Path: "input"}
	return <-t.errs
}

// An entry is what testing calls corpusEntry.
type entry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

// A deps implements testing's interface testDeps, whose documentation is testing/internal/testdeps.
type deps struct {
	target *Target
	begun  chan struct{}
}

// CoordinateFuzzing is called in place of fuzzing.
func (d *deps) CoordinateFuzzing(_ time.Duration, _ int64, _ time.Duration, _ int64, _ int, seeds []entry, types []reflect.Type, _, _ string) error {
	d.target.types = types
	for _, s := range seeds {
		if s.Values != nil {
			d.target.Seeds = append(d.target.Seeds, encode(s.Values))
		}
	}
	return nil
}

// RunFuzzWorker runs inputs until the process ends.
func (d *deps) RunFuzzWorker(run func(entry) error) error {
	close(d.begun)
	for e := range d.target.inputs {
		d.target.errs <- run(e)
	}
	return nil
}

func (*deps) CheckCorpus(values []any, types []reflect.Type) error {
	if len(values) != len(types) {
		return errors.New("a seed has another number of arguments than the target")
	}
	for i, v := range values {
		if reflect.TypeOf(v) != types[i] {
			return fmt.Errorf("argument %d of a seed is %T, not %v", i+1, v, types[i])
		}
	}
	return nil
}

func (*deps) ReadCorpus(string, []reflect.Type) ([]entry, error) { return nil, nil }
func (*deps) ImportPath() string                                 { return "" }
func (*deps) ModulePath() string                                 { return "" }
func (*deps) MatchString(pattern, s string) (bool, error)        { return regexp.MatchString(pattern, s) }
func (*deps) SetPanicOnExit0(bool)                               {}
func (*deps) StartCPUProfile(io.Writer) error                    { return errors.ErrUnsupported }
func (*deps) StopCPUProfile()                                    {}
func (*deps) StartTestLog(io.Writer)                             {}
func (*deps) StopTestLog() error                                 { return nil }
func (*deps) WriteProfileTo(string, io.Writer, int) error        { return errors.ErrUnsupported }
func (*deps) ResetCoverage()                                     {}
func (*deps) SnapshotCoverage()                                  {}

func (*deps) InitRuntimeCoverage() (string, func(string, string) (string, error), func() float64) {
	return "", nil, nil
}
