package corefile

import (
	"fmt"
	"strings"
)

// DidYouMean returns `; did you mean "ttl"?`, or "" if no known word is near.
func DidYouMean(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// Nearest returns the known word closest to word: at most two edits away, or a
// prefix of word or the reverse. It returns "" if there is none.
func Nearest(word string, known []string) string {
	lower := strings.ToLower(word)
	best, least := "", 3
	for _, k := range known {
		n := distance(lower, k)
		// Of words at the same distance, prefer one whose letters were all typed:
		// "tll" is "ttl", not "tls".
		better := n < least || n == least && strings.Trim(best, lower) != "" && strings.Trim(k, lower) == ""
		if better && n <= len(k)/2 {
			best, least = k, n
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, k := range known {
		if strings.HasPrefix(k, word) || strings.HasPrefix(word, k) && len(k) >= 3 {
			return k
		}
	}
	return ""
}

// distance returns the number of letters to replace, insert, delete or transpose
// (Damerau-Levenshtein).
func distance(a, b string) int {
	// Three rows of the table are enough.
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
