package zonefile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// An Error is an error in a zone file, with its position.
type Error struct {
	File string // relative to the same directory as the path given to Read
	Line int    // 0 if the error is about the whole file
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A File is a file that Read tried to read, and its state before that.
type File struct {
	Path string      // absolute
	Info fs.FileInfo // nil if the file did not exist
}

// Read reads the zone file at path, a master file (RFC 1035 §5) with $TTL and
// $GENERATE, and calls add with each record, in order. Relative names are completed
// with origin until the file has an $ORIGIN. A relative path after $INCLUDE is
// relative to the directory of the file that contains it. Includes can be nested
// seven deep.
//
// Read stops at the first error, including errors of add. Every error is an *Error.
// Read returns all files that it tried to read, including unreadable ones.
func Read(path string, origin wire.Name, add func(Record) error) (files []File, err error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{path, 0, err}
	}
	in := &inclusion{path: path, absolute: absolute}
	defer in.close()
	text, err := in.open(absolute)
	if err != nil {
		return in.files, &Error{path, 0, watch.Plain(err)} // Error.File is the path
	}

	p := dns.NewZoneParser(text, origin.String(), absolute)
	p.SetIncludeAllowed(true)
	p.SetIncludeFS(in)
	return in.files, in.read(p, add)
}

// ReadText reads the text of a master file as Read does, but for $INCLUDE, which is an error.
// Errors and records have name as their file. ttl is the TTL of records without one before $TTL. The text need
// not be trusted: its $GENERATE entries make at most `most` lines, or the error is [ErrTooMany].
func ReadText(name, text string, origin wire.Name, ttl uint32, most int, add func(Record) error) error {
	text, refused := limitGenerate(name, text, most)
	in := &inclusion{}
	s := &source{in: in, name: name, text: bufio.NewReader(strings.NewReader(text)), line: 1, entry: 1}
	in.now, s.ttl = s, fmt.Sprintf("$TTL %d", ttl)
	p := dns.NewZoneParser(s, origin.String(), "")
	p.SetDefaultTTL(ttl)
	if err := in.read(p, add); err != nil || refused == nil {
		return err
	}
	return refused
}

// read calls add with each record of a parser, and returns an *Error.
func (in *inclusion) read(p *dns.ZoneParser, add func(Record) error) error {
	room := make([]byte, maxRR)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		r, err := pack(rr, room)
		if err == nil {
			r.TTL, r.File, r.Line = in.now.generatedTTL(r.TTL), in.now.name, in.now.entry
			err = add(r)
		}
		if err != nil {
			return &Error{in.now.name, in.now.entry, err}
		}
	}

	if err := p.Err(); err != nil {
		message, line := splitError(err)
		if line == 0 || in.now.begins("$GENERATE") {
			line = in.now.entry // generated records have line numbers of their own
		}
		return &Error{in.now.name, line, errors.New(message)}
	}
	return nil
}

// An inclusion opens a zone file and the files that it includes. It is a file system
// of absolute paths without the leading slash.
type inclusion struct {
	path, absolute string // of the zone file itself
	files          []File
	opened         []*os.File
	now            *source // the file that was last read from
}

func (in *inclusion) close() {
	for _, f := range in.opened {
		_ = f.Close()
	}
}

// Open is called for each $INCLUDE.
func (in *inclusion) Open(name string) (fs.File, error) {
	return in.open("/" + name)
}

func (in *inclusion) open(absolute string) (*source, error) {
	info, err := os.Stat(absolute)
	in.files = append(in.files, File{absolute, info})
	if err != nil {
		return nil, err
	}

	// Without O_NONBLOCK, opening a named pipe would block.
	f, err := os.OpenFile(absolute, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	in.opened = append(in.opened, f)
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	in.files[len(in.files)-1].Info = info

	s := &source{in: in, name: in.displayPath(absolute), file: f, text: bufio.NewReaderSize(f, readSize), line: 1, entry: 1}
	if in.now == nil {
		in.now = s
	} else {
		s.ttl = in.now.ttl
	}
	return s, nil
}

// displayPath returns the path of a file in error messages: relative to the same
// directory as the path given to Read.
func (in *inclusion) displayPath(absolute string) string {
	if absolute == in.absolute {
		return in.path
	}
	relative, err := filepath.Rel(filepath.Dir(in.absolute), absolute)
	if err != nil || strings.HasPrefix(relative, "..") {
		return absolute
	}
	return filepath.Join(filepath.Dir(in.path), relative)
}

// A source is a file that the parser reads. The parser reads byte by byte, and no
// further than to the end of an entry, so source knows where the current entry began.
type source struct {
	in    *inclusion
	name  string
	file  *os.File // nil for a text
	text  *bufio.Reader
	end   error // of the file
	line  int
	entry int    // the line where the last entry began
	begin []byte // of the last entry, maxBegin bytes at most
	ttl   string // the last $TTL entry, or that for the default

	inEntry, quoted, escaped, comment bool // whether at is in an entry, a string, and so on
	depth                             int  // of parentheses
}

const (
	// readSize is the part of a file that is in memory: a zone file is larger than its zone.
	readSize = 64 << 10
	// maxBegin is more than a directive and its arguments need.
	maxBegin = 1 << 10
)

// ReadByte implements io.ByteReader, which the parser uses if a reader has it.
func (s *source) ReadByte() (byte, error) {
	s.in.now = s
	if s.end != nil {
		return 0, s.end
	}
	c, err := s.text.ReadByte()
	if err != nil {
		s.end = err
		if s.file != nil {
			_ = s.file.Close() // there may be many files
		}
		return 0, err
	}
	s.track(c)
	return c, nil
}

// track updates the state for the next byte c.
func (s *source) track(c byte) {
	if s.inEntry && len(s.begin) < maxBegin {
		s.begin = append(s.begin, c)
	}
	if c == '\n' {
		s.line++
		s.comment = false
		if s.inEntry && !s.quoted && s.depth == 0 {
			s.inEntry = false
			if s.begins("$TTL") {
				s.ttl = string(s.begin)
			}
		}
		return
	}

	if s.comment {
		return
	}
	if !s.inEntry && c != ' ' && c != '\t' && c != '\r' && c != ';' {
		s.entry, s.begin, s.inEntry = s.line, append(s.begin[:0], c), true
	}

	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.quoted = !s.quoted
	case s.quoted:
	case c == ';':
		s.comment = true
	case c == '(':
		s.depth++
	case c == ')':
		s.depth = max(0, s.depth-1)
	}
}

// begins reports whether the current entry begins with a directive.
func (s *source) begins(directive string) bool {
	return bytes.EqualFold(s.begin[:min(len(directive), len(s.begin))], []byte(directive))
}

// generatedTTL returns the TTL of a record that $GENERATE may have made. The library
// ignores $TTL there, and sets the TTL of records without one to an hour.
func (s *source) generatedTTL(ttl uint32) uint32 {
	const anHour = 3600
	if ttl != anHour || s.ttl == "" || !s.begins("$GENERATE") {
		return ttl
	}

	words := strings.Fields(string(s.begin))
	for _, word := range words[min(3, len(words)):] { // after the range and the owner
		if _, ok := dns.StringToType[strings.ToUpper(word)]; ok {
			break
		}
		if _, ok := dns.StringToClass[strings.ToUpper(word)]; !ok {
			return ttl // the entry has a TTL
		}
	}

	p := dns.NewZoneParser(strings.NewReader(s.ttl+"\n. NS .\n"), ".", "")
	if rr, ok := p.Next(); ok {
		return rr.Header().Ttl
	}
	return ttl
}

// The other methods of fs.File, which the parser does not call.

func (s *source) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (s *source) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
func (s *source) Close() error               { return nil }
