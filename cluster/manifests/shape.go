package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// The YAML library takes 5 to 10 times as long for a document as the JSON decoder for its
// JSON, but the documents of a large folder differ in names, addresses and numbers only. So
// the library parses one document of each shape.
//
// Two documents have the same shape if they differ only in words: values of letters, digits
// and some characters between them that mean nothing to YAML. The library converts the
// document once more with unique marks as its words. Where its JSON has a mark as a string,
// the JSON of every document of this shape has the word. What has any doubt is left to the
// library: other characters, a mark that is a part of a string or a key. The library also
// decides whether a word is a string, a number or a boolean.

const (
	maxShapes  = 1 << 20 // bytes of the shapes that are kept, and of their templates
	wordCost   = 64      // bytes of a template for each word, about
	maxScalars = 1 << 12 // words whose JSON is kept
	maxWord    = 256     // a longer word might end the library's search for the colon of a key
)

// shapes converts documents to JSON. It is safe for concurrent use.
type shapes struct {
	seed maphash.Seed
	free sync.Pool // of *words

	mu    sync.Mutex
	once  map[uint64]bool      // hashes of the shapes that one document had
	known map[string]*template // of the others; nil if the shape has none
	size  int                  // of known, in bytes
}

func newShapes() *shapes {
	return &shapes{seed: maphash.MakeSeed(), once: map[uint64]bool{}, known: map[string]*template{}}
}

// toJSON does the same as yamlToJSON. It returns nil as the head if that has to be decoded.
func (s *shapes) toJSON(text []byte) ([]byte, *head, error) {
	w, _ := s.free.Get().(*words)
	if w == nil {
		w = &words{scalars: map[string]string{}}
	}
	defer s.free.Put(w)

	if w.split(text) {
		if t := s.template(w); t != nil {
			if raw, h, ok := t.fill(w); ok {
				return raw, h, nil
			}
		}
	}
	raw, err := yamlToJSON(text)
	return raw, nil, err
}

// template returns the template for w, nil if there is none. To make one costs as much as
// to convert a document, so the first document of a shape has none.
func (s *shapes) template(w *words) *template {
	t, again := s.lookup(w)
	if !again {
		return t
	}

	// The lock is not held: other documents of the shape go to the library meanwhile.
	shape := string(w.shape)
	t = newTemplate(w.shape)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[shape] = t
	return t
}

// lookup returns the template for w, if there is one, and reports whether the caller must make
// it, because w is the second document of its shape.
func (s *shapes) lookup(w *words) (t *template, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.known[string(w.shape)]; ok {
		return t, false
	}

	sum := maphash.Bytes(s.seed, w.shape)
	if !s.once[sum] {
		s.once[sum] = true
		return nil, false
	}

	cost := len(w.shape) + wordCost*len(w.words)
	if s.size+cost > maxShapes {
		return nil, false
	}
	s.known[string(w.shape)] = nil
	s.size += cost
	return nil, true
}

// words are a document, split into its shape and its words.
type words struct {
	shape   []byte // the document with the kind of each word in its place
	words   []word
	scalars map[string]string // the JSON of words that may be numbers or booleans
}

type word struct {
	kind byte
	text []byte
}

// The kinds of words. They are no characters of a document that has a shape.
const (
	plainWord  = 1
	colonWord  = 2 // has a colon, and so may be more than one value in a flow collection
	quotedWord = 3 // has quotation marks of its own, and so is a string
)

// split reports whether the document has a shape. It has none with block scalars, anchors,
// tags and uncommon characters. A comment is one character of the shape.
func (w *words) split(text []byte) bool {
	w.shape, w.words = w.shape[:0], w.words[:0]
	if len(text) > partSize {
		return false
	}
	for at := 0; at < len(text); {
		c := text[at]
		switch {
		case isAlphanumeric(c):
			end := at + 1
			for end < len(text) && (isAlphanumeric(text[end]) || strings.IndexByte("-./_:", text[end]) >= 0) {
				end++
			}
			for text[end-1] == ':' { // ends a key
				end--
			}
			if end-at > maxWord {
				return false
			}
			w.add(text, at, end)
			at = end
			continue

		case c == '#' && (at == 0 || strings.IndexByte(" \n", text[at-1]) >= 0):
			for at+1 < len(text) && text[at+1] >= ' ' && text[at+1] <= '~' {
				at++
			}

		case strings.IndexByte(" \r\n:,-[]{}\"'", c) < 0:
			return false
		}
		w.shape = append(w.shape, c)
		at++
	}
	return true
}

// add adds the word between two offsets of the text, or the key that it is to the shape.
func (w *words) add(text []byte, at, end int) {
	it := word{plainWord, text[at:end]}
	next := bytes.TrimLeft(text[end:], "\"' \r\n")
	switch {
	case len(next) > 0 && next[0] == ':':
		w.shape = append(w.shape, it.text...)
		return
	case at > 0 && end < len(text) && text[at-1] == text[end] && (text[end] == '"' || text[end] == '\''):
		it.kind = quotedWord
	case bytes.IndexByte(it.text, ':') >= 0:
		it.kind = colonWord
	}
	w.shape = append(w.shape, it.kind)
	w.words = append(w.words, it)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlphanumeric(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || isDigit(c) }

// scalar appends the JSON of a word. It returns false if the word has none.
func (w *words) scalar(to []byte, it word) ([]byte, bool) {
	// Booleans have five letters at most, and numbers one dot.
	if it.kind == quotedWord || !isDigit(it.text[0]) && len(it.text) > 5 || bytes.Count(it.text, []byte{'.'}) > 1 {
		return append(append(append(to, '"'), it.text...), '"'), true
	}
	known, ok := w.scalars[string(it.text)]
	if !ok {
		raw, err := yamlToJSON(it.text)
		if err != nil {
			return to, false
		}
		known = string(raw)
		if len(w.scalars) < maxScalars {
			w.scalars[string(it.text)] = known
		}
	}
	return append(to, known...), true
}

// A template is the JSON of the documents that have one shape.
type template struct {
	parts []part
	last  string // after the last part
	head  *head  // its fields that are words are empty; nil if it has to be decoded
}

// A part of a template is text and the word that comes after it.
type part struct {
	before string
	word   int // its number
	field  int // the number of the head's field that is the word, 0 if none is
}

// markPattern matches the mark of a word as a JSON string, and a colon after it.
var markPattern = regexp.MustCompile(`"seamark[-:]word-([0-9]+)"(:?)`)

// newTemplate returns nil if the library's JSON does not have each word as a value.
func newTemplate(shape []byte) *template {
	var marked []byte
	words := 0
	for _, c := range shape {
		switch c {
		case plainWord, quotedWord:
			marked = fmt.Appendf(marked, "seamark-word-%d", words)
		case colonWord:
			marked = fmt.Appendf(marked, "seamark:word-%d", words)
		default:
			marked = append(marked, c)
			continue
		}
		words++
	}

	// A string with a quotation mark might end in a mark, and one with the sign of comments
	// has the text of a comment.
	raw, err := yamlToJSON(marked)
	if err != nil || bytes.ContainsAny(raw, `\#`) {
		return nil
	}

	t := &template{}
	var h head
	fields := map[string]int{} // of the head, by their marks
	if json.Unmarshal(raw, &h) == nil && h.Items == nil {
		t.head = &h
		for i, field := range h.fields() {
			fields[*field] = i + 1
		}
	}

	at, found := 0, make([]bool, words)
	for _, m := range markPattern.FindAllSubmatchIndex(raw, -1) {
		n, err := strconv.Atoi(string(raw[m[2]:m[3]]))
		if isKey := m[4] < m[5]; isKey || err != nil || n >= words || found[n] {
			return nil
		}
		found[n] = true
		t.parts = append(t.parts, part{string(raw[at:m[0]]), n, fields[string(raw[m[0]+1:m[1]-1])]})
		at = m[1]
	}
	if len(t.parts) < words {
		return nil
	}
	t.last = string(raw[at:])
	return t
}

// fill returns the JSON for w, and its head if it is known.
func (t *template) fill(w *words) (raw []byte, h *head, ok bool) {
	raw = make([]byte, 0, 2*len(w.shape))
	if t.head != nil {
		h = new(*t.head)
	}
	for _, p := range t.parts {
		raw = append(raw, p.before...)
		from, text := len(raw), w.words[p.word].text
		if raw, ok = w.scalar(raw, w.words[p.word]); !ok {
			return nil, nil, false
		}
		if p.field == 0 || h == nil {
			continue
		}
		if raw[from] != '"' {
			h = nil // decoding the head returns the error
			continue
		}
		*h.fields()[p.field-1] = string(text)
	}
	return append(raw, t.last...), h, true
}
