package flags

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestCheckRange(t *testing.T) {
	for _, c := range []struct {
		value time.Duration
		want  string
	}{
		{-1, "--period: want 0s..1h0m0s, got -1ns"},
		{0, ""},
		{time.Hour, ""},
		{time.Hour + 1, "--period: want 0s..1h0m0s, got 1h0m0.000000001s"},
	} {
		got := ""
		if err := CheckRange("--period", c.value, 0, time.Hour); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("CheckRange(%v): got %q, want %q", c.value, got, c.want)
		}
	}
}

func TestCheckRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--file=x", "-file: is not read"},
		{"--file x --switch", "-file: is not read\n-switch: is not supported"},
		{"--switch=true", "-switch: is not supported"},
		{"--switch=false", ""},
	} {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		Refuse(f, "file", "is not read")
		RefuseSwitch(f, "switch", "is not supported")
		if err := f.Parse(strings.Fields(c.args)); err != nil {
			t.Fatalf("%q: %v", c.args, err)
		}
		got := ""
		if err := CheckRefused(f); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got error %q, want %q", c.args, got, c.want)
		}
		if usage := f.FlagUsages(); usage != "" {
			t.Errorf("usage of refused flags: got %q, want none", usage)
		}
	}
}

func TestLongForm(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.String("conf", "", "")
	f.String("log-dir", "", "")
	f.Bool("v", false, "")
	for _, c := range []struct{ args, want string }{
		{"-conf x", "--conf x"},
		{"-conf=x=y --conf=z", "--conf=x=y --conf=z"},
		{"--log_dir=a_b -log_dir c_d", "--log-dir=a_b --log-dir c_d"},
		{"-v -unknown conf", "-v -unknown conf"},
		{"-conf x -- -conf y", "--conf x -- -conf y"},
	} {
		got := LongForm(strings.Fields(c.args), f)
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("LongForm(%q): got %q, want %q", c.args, got, want)
		}
	}
}

func TestKlog(t *testing.T) {
	for _, c := range []struct {
		args, ignored, given string
		level                slog.Level
	}{
		{"", "", "", slog.LevelInfo},
		{"-v 3 --logtostderr", "", "--v --logtostderr", slog.LevelInfo},
		{"--v=4 --alsologtostderr --log-dir=/x", "--alsologtostderr --log-dir", "--v --alsologtostderr --log-dir", slog.LevelDebug},
	} {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		k := AddKlog(f)
		if err := f.Parse(strings.Fields(c.args)); err != nil {
			t.Fatalf("%q: %v", c.args, err)
		}
		if got := strings.Join(k.Ignored(), " "); got != c.ignored {
			t.Errorf("%q: ignored flags: got %q, want %q", c.args, got, c.ignored)
		}
		if got := strings.Join(k.Given(), " "); got != c.given {
			t.Errorf("%q: given flags: got %q, want %q", c.args, got, c.given)
		}
		if got := k.Level(); got != c.level {
			t.Errorf("%q: level: got %v, want %v", c.args, got, c.level)
		}
	}
}
