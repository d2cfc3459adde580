package zonefile

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxGenerates is the most $GENERATE entries of a text: the parser's calls nest for entries that follow each
	// other and make no records.
	maxGenerates = 1000
	// maxGenerate is the most bytes of an entry: the parser's time grows with the square of its length.
	maxGenerate = 1 << 10
	// maxWidth is the most digits of a number whose width is given in braces.
	maxWidth = 255
	// generateUnit is the most bytes of a line that counts as one.
	generateUnit = 256
)

const generate = "$GENERATE"

// ErrTooMany is the cause of ReadText's error for a text whose $GENERATE entries make more records than they may.
var ErrTooMany = errors.New("$GENERATE makes too many records")

var (
	errHidden = errors.New("want $GENERATE at the beginning of a line, and its whole entry on that line, without parentheses")

	generateEntry = regexp.MustCompile(`^[ \t]+(\d{1,10})-(\d{1,10})(?:/(\d{1,10}))?[ \t]+[^ \t;]`)
	// later finds what follows the first word of each line: no entry begins there.
	later = regexp.MustCompile(`(?m)[ \t;"\\].*$`)
	// dropped has the characters that the parser may leave out of a word.
	dropped = strings.NewReplacer("\r", "", "\n", "", "(", "", ")", "")
	// opened finds a parenthesis that may open before an entry, so that the entry does not end with its line.
	opened = regexp.MustCompile(`(?m)^\r*\(`)
)

// limitGenerate cuts a text before the first $GENERATE entry that is not permitted, and returns the reason. The parser
// expands an entry to up to 65,536 lines, and none of them has to be a record: a text without records could occupy a
// processor for hours. All entries together may make most lines; a long line counts as several.
func limitGenerate(name, text string, most int) (permitted string, refused error) {
	all := countGenerate(dropped.Replace(later.ReplaceAllString(text, "")))
	if all == 0 {
		return text, nil
	}
	for line := range strings.Lines(text) {
		if isGenerate(line) {
			all--
		}
	}
	if all > 0 || opened.MatchString(text) {
		return "", &Error{name, 0, errHidden}
	}

	left := int64(most)
	line, at, count := 0, 0, 0
	for entry := range strings.Lines(text) {
		line++
		if isGenerate(entry) {
			count++
			lines, err := checkGenerate(strings.TrimRight(entry, "\r\n"))
			switch left -= lines; {
			case err != nil:
			case count > maxGenerates:
				err = fmt.Errorf("want at most %d $GENERATE entries", maxGenerates)
			case left < 0:
				err = ErrTooMany
			}
			if err != nil {
				return text[:at], &Error{name, line, err}
			}
		}
		at += len(entry)
	}
	return text, nil
}

// countGenerate returns how many entries a text can have.
func countGenerate(text string) int { return strings.Count(strings.ToUpper(text), generate) }

// isGenerate reports whether a line begins with $GENERATE.
func isGenerate(line string) bool {
	return len(line) >= len(generate) && strings.EqualFold(line[:len(generate)], generate)
}

// checkGenerate returns for how many lines a $GENERATE entry counts.
func checkGenerate(entry string) (lines int64, err error) {
	match := generateEntry.FindStringSubmatch(entry[len(generate):])
	switch {
	case len(entry) > maxGenerate:
		return 0, fmt.Errorf("want a $GENERATE entry of at most %d bytes", maxGenerate)
	case match == nil:
		return 0, errors.New("want $GENERATE with a range such as 1-100 or 1-100/2, an owner name, a type and RDATA")
	case !isWhole(entry) || countGenerate(entry) > 1:
		return 0, errHidden
	}

	number := func(digits string) int64 {
		n, _ := strconv.ParseInt(digits, 10, 64)
		return n
	}
	lines = max(0, number(match[2])-number(match[1]))/max(1, number(match[3])) + 1
	size := len(entry) + maxWidth*strings.Count(entry, "{")
	return lines * int64(1+size/generateUnit), nil
}

// isWhole reports whether an entry ends with its line: its quotes do, and it has no parentheses outside of them.
func isWhole(entry string) bool {
	quoted, escaped := false, false
	for _, c := range []byte(entry) {
		switch {
		case c == '\r':
			return false
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ';':
			return true
		case c == '(' || c == ')':
			return false
		}
	}
	return !quoted
}
