package zonefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// An Error is what is wrong with a zone file, and where.
type Error struct {
	File string // as it was given, or where it was included from
	Line int    // 0 if the whole file is meant
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A File is one that was read, as it was found before that.
type File struct {
	Path string      // absolute
	Info fs.FileInfo // nil if there was none
}

// Read reads the zone file at path, a master file of RFC 1035 §5 with $TTL and
// $GENERATE, and gives each record to add, in order. origin is what relative
// names end in until the file has an $ORIGIN. $INCLUDE reads files whose paths
// begin at the folder of the one that includes them, to a depth of seven.
//
// It ends at the first error, add's among them. Every error is an *Error that
// says where. files is what has been read, included files too, and what could
// not be read.
func Read(path string, origin wire.Name, add func(Record) error) (files []File, err error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{path, 0, err}
	}
	in := &inclusion{path: path, absolute: absolute}
	text, err := in.open(absolute)
	if err != nil {
		var inPath *fs.PathError
		if errors.As(err, &inPath) {
			err = inPath.Err // the path is said already
		}
		return in.files, &Error{path, 0, err}
	}
	p := dns.NewZoneParser(text, origin.String(), absolute)
	p.SetIncludeAllowed(true)
	p.SetIncludeFS(in)
	room := make([]byte, maxRR)
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		var r Record
		if r, err = pack(rr, room); err == nil {
			r.TTL, r.File, r.Line = in.now.generated(r.TTL), in.now.name, in.now.entry
			err = add(r)
		}
		if err != nil {
			return in.files, &Error{in.now.name, in.now.entry, err}
		}
	}
	if err := p.Err(); err != nil {
		message, line := plain(err)
		if line == 0 || in.now.begins("$GENERATE") {
			line = in.now.entry // what was generated has lines of its own
		}
		return in.files, &Error{in.now.name, line, errors.New(message)}
	}
	return in.files, nil
}

// An inclusion opens a zone file and what it includes. It is a file system of
// absolute paths without their first slash.
type inclusion struct {
	path, absolute string // of the first file
	files          []File
	now            *source // what has been read from last
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
	// To open what is no file may be to wait.
	f, err := os.OpenFile(absolute, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	in.files[len(in.files)-1].Info = info
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	s := &source{in: in, name: in.shown(absolute), text: text, line: 1, entry: 1}
	if in.now == nil {
		in.now = s
	} else {
		s.ttl = in.now.ttl
	}
	return s, nil
}

// shown is how a file is called in errors: as the first one was given.
func (in *inclusion) shown(absolute string) string {
	if absolute == in.absolute {
		return in.path
	}
	relative, err := filepath.Rel(filepath.Dir(in.absolute), absolute)
	if err != nil || strings.HasPrefix(relative, "..") {
		return absolute
	}
	return filepath.Join(filepath.Dir(in.path), relative)
}

// A source is one file as the parser reads it, byte by byte, no further than
// to the end of each entry: so it knows where the record at hand began.
type source struct {
	in    *inclusion
	name  string
	text  []byte
	at    int
	line  int
	entry int    // the line where the last entry began
	start int    // and its offset
	ttl   string // the last entry that was a $TTL

	inside, quoted, escaped, comment bool // an entry, and so on
	depth                            int  // of parentheses
}

// ReadByte is what the parser reads with.
func (s *source) ReadByte() (byte, error) {
	s.in.now = s
	if s.at == len(s.text) {
		return 0, io.EOF
	}
	c := s.text[s.at]
	s.follow(c)
	s.at++
	return c, nil
}

// follow keeps the state of the text as c goes by.
func (s *source) follow(c byte) {
	if c == '\n' {
		s.line++
		s.comment = false
		if s.inside && !s.quoted && s.depth == 0 {
			s.inside = false
			if s.begins("$TTL") {
				s.ttl = string(s.text[s.start:s.at])
			}
		}
		return
	}
	if s.comment {
		return
	}
	if !s.inside && c != ' ' && c != '\t' && c != '\r' && c != ';' {
		s.entry, s.start, s.inside = s.line, s.at, true
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

// begins says whether the entry at hand begins with a directive.
func (s *source) begins(directive string) bool {
	return bytes.HasPrefix(bytes.ToUpper(s.text[s.start:min(s.start+len(directive), len(s.text))]), []byte(directive))
}

// generated gives the TTL of a record that may come of a $GENERATE. For the
// library that has no $TTL, and a record without a TTL has an hour.
func (s *source) generated(ttl uint32) uint32 {
	const anHour = 3600
	if ttl != anHour || s.ttl == "" || !s.begins("$GENERATE") {
		return ttl
	}
	words := strings.Fields(string(s.text[s.start:s.at]))
	for _, word := range words[min(3, len(words)):] { // behind the range and the owner
		if _, ok := dns.StringToType[strings.ToUpper(word)]; ok {
			break
		}
		if _, ok := dns.StringToClass[strings.ToUpper(word)]; !ok {
			return ttl // its own
		}
	}
	p := dns.NewZoneParser(strings.NewReader(s.ttl+"\n. NS .\n"), ".", "")
	if rr, ok := p.Next(); ok {
		return rr.Header().Ttl
	}
	return ttl
}

// The rest of fs.File; the parser needs none of it.

func (s *source) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (s *source) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
func (s *source) Close() error               { return nil }
