package cmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/sys/terminal"
)

// A table writes rows of cells, which may be from clients and other servers. On a terminal the cells of
// wide columns are shortened, so that a row fits; programs get whole cells.
type table struct {
	out     io.Writer
	columns int // of the terminal, 0 for a program
	rows    [][]string
}

func (p *program) newTable() *table {
	return &table{out: p.out, columns: terminal.Columns(p.console())}
}

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = explain.Clean(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, texts)
}

// flush writes the rows. The Writer keeps its error.
func (t *table) flush() {
	t.fit()
	w := tabwriter.NewWriter(t.out, 0, 8, gap, ' ', 0)
	for _, cells := range t.rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
	_ = w.Flush()
}

const (
	gap       = 2  // spaces between columns
	narrowest = 10 // characters that a shortened cell has left
)

// fit shortens cells of the widest columns until a row is no wider than the terminal.
func (t *table) fit() {
	var widths []int
	for _, cells := range t.rows {
		widths = append(widths, make([]int, max(0, len(cells)-len(widths)))...)
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}

	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for t.columns > 0 && total > t.columns && slices.Max(widths) > narrowest {
		widths[slices.Index(widths, slices.Max(widths))]--
		total--
	}
	for _, cells := range t.rows {
		for i, cell := range cells {
			cells[i] = middle(cell, widths[i])
		}
	}
}

// middle returns text of n characters at most: the beginning and the end tell most names apart.
func middle(text string, n int) string {
	runes := []rune(text)
	if n < 1 || len(runes) <= n {
		return text
	}
	return string(runes[:n/2]) + "…" + string(runes[len(runes)-(n-1)/2:])
}
