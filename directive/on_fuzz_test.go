package directive

import (
	"slices"
	"strings"
	"testing"
)

// Words that are quoted again are the same words.
func FuzzSplitCommand(f *testing.F) {
	for _, line := range []string{"cmd a b", `cmd 'a b' "c \" d"`, `cmd a\ b # c`, "cmd \n a &"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := splitCommand(line)
		if err != nil {
			return
		}

		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := splitCommand(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q: got %q, quoted again %q, error %v", line, words, again, err)
		}
	})
}
