package records

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// Setup sets up the records directive: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	h := &Handler{lines: map[*entry]place{}, whole: b.Zones}
	var own draft
	var errs []error
	for _, d := range uses {
		of, err := h.read(b, d, &own)
		errs = append(errs, err)
		switch {
		case of == nil:
		case h.settings == nil:
			h.settings = of
		default:
			errs = append(errs, of.Use.Errorf("already given at %s:%d, and can be given once in a server block",
				h.settings.Use.File, h.settings.Use.Line))
		}
		if zones, err := b.ZonesOr(d); err == nil {
			b.Answers(config.Extent{Use: d, Zones: zones, Open: true}) // names without records pass
		}
	}

	h.packed = own.pack()
	for owner, sets := range objects.Owners(h.packed) {
		e := &objects.Entry{Value: sets}
		h.own.Set(owner, e)
		h.lines[(*entry)(e)] = own.owners[owner].first
	}
	b.Handle(h)
	if h.settings != nil {
		var swap func()
		b.OnStart(func(s *config.Start) (err error) {
			if h.objects, err = h.settings.start(s, b); err == nil {
				swap = h.objects.AddCorefile(s, &h.own)
			}
			return err
		})
		b.OnSwap(func() { swap() })
	}
	return errors.Join(errs...)
}

// read adds the records of one use of the directive to own, and returns its settings of objects; nil
// if it has none.
func (h *Handler) read(b *config.Block, d corefile.Directive, own *draft) (*objectSettings, error) {
	zones, err := b.ZonesOr(d)
	errs := []error{err}
	ttl := 3600
	h.zones = append(h.zones, zones...)

	var options, lines []corefile.Directive
	var ofObjects *objectSettings
	for _, o := range d.Body {
		o.Path = d.Path
		switch {
		case o.Text == "ttl" && len(o.Args) < 2: // a record has at least two words after its name
			o.Path += ": ttl"
			options = append(options, o)
		case o.Text == "objects" && len(o.Args) == 0:
			o.Path += ": objects"
			options = append(options, o)
		default:
			lines = append(lines, o)
		}
	}

	d.Body = options
	errs = append(errs, d.Options(
		corefile.Option{Usage: "ttl SECONDS", Once: true, Set: corefile.Int(&ttl, 0, math.MaxInt32)},
		corefile.Option{Usage: "objects", Block: true, Once: true, Set: func(o corefile.Directive) (err error) {
			ofObjects, err = parseObjects(b, o, zones)
			return err
		}}))
	if ofObjects != nil {
		ofObjects.ttl = uint32(ttl)
	}
	if len(lines) == 0 && ofObjects == nil {
		errs = append(errs, d.Errorf("want records in braces, NAME [TTL] [IN] TYPE RDATA..."))
	}

	for _, o := range lines {
		owner, r, err := parse(o, uint32(ttl))
		switch {
		case err != nil:
		case len(zones) > 0 && !slices.ContainsFunc(zones, owner.Within):
			err = fmt.Errorf("%s is not in %s", owner, wire.JoinNames(zones, " or "))
		default:
			err = own.add(place{o.File, o.Line}, owner, r)
		}
		errs = append(errs, o.Each(err))
	}
	return ofObjects, errors.Join(errs...)
}

// parse parses the line of one record. It returns the owner name separately; the
// Owner of the record is the root.
func parse(o corefile.Directive, ttl uint32) (wire.Name, zonefile.Record, error) {
	var r zonefile.Record
	words := o.Words()
	if o.Block {
		return "", r, errors.New("a record takes no block in braces")
	}

	at := typeIndex(words)
	if at+1 >= len(words) {
		return "", r, fmt.Errorf("want NAME [TTL] [IN] TYPE RDATA..., got %q",
			strings.Join(append([]string{o.Text}, words...), " "))
	}
	if o.Text == "@" {
		return "", r, errors.New("want an absolute name, got @")
	}

	owner, err := wire.ParseName(o.Text)
	if err != nil {
		return "", r, fmt.Errorf("not a name: %w", err)
	}

	kind, _ := wire.ParseType(words[at])
	r, err = zonefile.ParseRecord(". "+strings.Join(words[:at+1], " ")+rdata(kind, words[at+1:]), wire.Root, ttl)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "not a TTL: "): // the library's error for an unknown type
		err = fmt.Errorf("want NAME [TTL] [IN] TYPE RDATA...: unknown type %q", words[at])
	case err != nil:
	case r.Class != wire.ClassIN:
		err = fmt.Errorf("want class IN, got %s", r.Class)
	case r.Type == wire.TypeDNAME:
		err = errors.New("DNAME records are not supported: use the file directive")
	}
	return owner, r, err
}

// typeIndex returns the index of the type, which follows an optional TTL and class.
func typeIndex(words []string) (n int) {
	for n < min(2, len(words)) {
		c, class := wire.ParseClass(words[n])
		if (!class || c == wire.ClassANY) && (words[n] == "" || words[n][0] < '0' || words[n][0] > '9') {
			break
		}
		n++
	}
	return n
}

// rdata returns words as RDATA of a zone file. The Corefile's parser has removed the
// quotes; rdata adds quotes where the word or the type requires them.
func rdata(t wire.Type, words []string) string {
	var b strings.Builder
	for i, word := range words {
		b.WriteByte(' ')
		switch {
		case t == wire.TypeSVCB || t == wire.TypeHTTPS:
			escape(&b, word) // the quotes of these types are inside a word: alpn="h2,h3"
		case t == wire.TypeNAPTR && 2 <= i && i <= 4, word == "", needsQuotes(word):
			quote(&b, word)
		default:
			b.WriteString(word)
		}
	}
	return b.String()
}

// needsQuotes reports whether a word has another meaning in a zone file if it is not
// quoted.
func needsQuotes(word string) bool {
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == '\\' && i+1 < len(word) && word[i+1] > ' ':
			i++ // the next character is escaped
		case c <= ' ' || strings.IndexByte(`";()\`, c) >= 0:
			return true
		}
	}
	return false
}

// quote writes a word in quotes. It keeps escape sequences.
func quote(b *strings.Builder, word string) {
	b.WriteByte('"')
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == '\\' && i+1 < len(word) && word[i+1] >= ' ':
			b.WriteString(word[i : i+2])
			i++
		case c == '\\' || c == '"':
			b.Write([]byte{'\\', c})
		case c < ' ':
			fmt.Fprintf(b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

// escape writes a word without quotes. It escapes characters that would end the
// record or start a comment, and keeps escape sequences.
func escape(b *strings.Builder, word string) {
	quoted := false
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case c == '\\' && i+1 < len(word) && word[i+1] >= ' ':
			b.WriteString(word[i : i+2])
			i++
		case c == '\\':
			b.WriteString(`\\`)
		case c < ' ':
			fmt.Fprintf(b, `\%03d`, c)
		case !quoted && strings.IndexByte(";()", c) >= 0:
			b.Write([]byte{'\\', c})
		default:
			quoted = quoted != (c == '"')
			b.WriteByte(c)
		}
	}
}
