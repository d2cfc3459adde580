// Package table writes tables for people, for the commands that look at servers.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/seamark/seamark/observe/explain"
)

// A Table writes rows of cells, which may be from clients and other servers. On a terminal the cells of
// wide columns are shortened, so that a row fits; programs get whole cells.
type Table struct {
	out     io.Writer
	columns int
	rows    [][]string
}

// New returns a table. columns is the width of the terminal, 0 for a program.
func New(out io.Writer, columns int) *Table { return &Table{out: out, columns: columns} }

// Row adds a row.
func (t *Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = explain.Clean(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, texts)
}

// Flush writes the rows. The Writer keeps its error.
func (t *Table) Flush() {
	t.fit()
	w := tabwriter.NewWriter(t.out, 0, 8, Gap, ' ', 0)
	for _, cells := range t.rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
	_ = w.Flush()
}

const (
	Gap       = 2 // spaces between columns
	Narrowest = 8 // characters that a shortened cell has left
)

// fit shortens cells of the widest columns until a row is no wider than the terminal.
func (t *Table) fit() {
	var widths []int
	for _, cells := range t.rows {
		widths = append(widths, make([]int, max(0, len(cells)-len(widths)))...)
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}

	total := Gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for t.columns > 0 && total > t.columns && slices.Max(widths) > Narrowest {
		widths[slices.Index(widths, slices.Max(widths))]--
		total--
	}
	for _, cells := range t.rows {
		for i, cell := range cells {
			cells[i] = Middle(cell, widths[i])
		}
	}
}

// Middle returns text of n characters at most: the beginning and the end tell most names apart.
func Middle(text string, n int) string {
	runes := []rune(text)
	if n < 1 || len(runes) <= n {
		return text
	}
	return string(runes[:n/2]) + "…" + string(runes[len(runes)-(n-1)/2:])
}
