package builtin

import (
	"fmt"
	"github.com/seamark/seamark/test/race"
	"strings"
	"testing"
)

// TOB-CDNS-3, TOB-CDNS-4, TOB-CDNS-9 and TOB-CDNS-15: an odd configuration is refused or accepted, and
// is no panic: each accepted form, with each word left out, or replaced by an odd one.
func TestOddConfigurationNoPanic(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	groups := groupsOf(t, "testdata/accepted.txt")
	t.Chdir(folder(t))
	odd := []string{"", `""`, "{", "-1", "0", "99999999999999999999", "-1s", "/", ".", "*", ":", "[", "0/0", "://", "{{", "(", strings.Repeat("a", 64)}
	for _, g := range groups {
		lines := strings.Split(g, "\n")
		for i, line := range lines {
			words := strings.Fields(line)
			for j, word := range words {
				if j == 0 && i == 0 {
					continue // the directive itself
				}
				for _, o := range odd {
					words[j] = o
					lines[i] = strings.Join(words, " ")
					planNoPanic(t, ".:1053 {\n"+strings.Join(lines, "\n")+"\n}\n")
				}
				words[j] = word
			}
			lines[i] = line
		}
	}
}

// planNoPanic plans a Corefile, and reports a panic.
func planNoPanic(t *testing.T, text string) {
	t.Helper()
	defer func() {
		if cause := recover(); cause != nil {
			t.Errorf("got panic %v, want an error or none\n%s", cause, text)
		}
	}()
	_, err := planned(text)
	_ = fmt.Sprint(err)
}
