package tsig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/tsig"
	"github.com/seamark/seamark/internal/watch"
	"github.com/seamark/seamark/wire"
)

// keys are those of the Corefile and of files.
type keys struct {
	own    map[wire.Name]*tsig.Key
	paths  []string
	parsed []map[wire.Name]*tsig.Key // the files' keys until the start
	files  []*keyFile                // set at the start
}

func (k *keys) lookup(name wire.Name) *tsig.Key {
	if key := k.own[name]; key != nil {
		return key
	}
	for _, found := range k.parsed {
		if key := found[name]; key != nil {
			return key
		}
	}
	for _, f := range k.files {
		if key := (*f.keys.Load())[name]; key != nil {
			return key
		}
	}
	return nil
}

// newKey returns a key from its texts.
func newKey(name, algorithm, secret string) (*tsig.Key, error) {
	n, err := wire.ParseName(name)
	if err != nil {
		return nil, fmt.Errorf("not a name of a key: %w", err)
	}
	a, err := wire.ParseName(algorithm)
	if err != nil || !tsig.Known(a) {
		return nil, fmt.Errorf("key %s: unknown algorithm, want hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512", n)
	}
	data, err := base64.StdEncoding.DecodeString(secret)
	if err != nil || len(data) == 0 {
		return nil, fmt.Errorf("key %s: the secret is not in base64", n)
	}
	return &tsig.Key{Name: n, Algorithm: a, Secret: data}, nil
}

// tokenize returns the words, strings and braces of a text in the format of named.conf,
// without the comments.
func tokenize(text string) (tokens []string) {
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		n := 1
		switch {
		case text == "":
			return tokens
		case text[0] == '#', strings.HasPrefix(text, "//"):
			_, text, _ = strings.Cut(text, "\n")
			continue
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text, "*/")
			continue
		case text[0] == '"':
			n = 2 + max(0, strings.IndexByte(text[1:], '"'))
		case !strings.ContainsRune("{};", rune(text[0])):
			if n = strings.IndexAny(text, " \t\r\n{};\""); n < 0 {
				n = len(text)
			}
		}
		n = min(n, len(text))
		tokens, text = append(tokens, strings.Trim(text[:n], `"`)), text[n:]
	}
}

// parseKeys reads keys in the format of named.conf. Errors do not contain secrets.
func parseKeys(text string) (map[wire.Name]*tsig.Key, error) {
	words := tokenize(text)
	found := map[wire.Name]*tsig.Key{}
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	for len(words) > 0 {
		if next() != "key" {
			return nil, fmt.Errorf("want key NAME { ... } after %d keys", len(found))
		}
		name, algorithm, secret := next(), "hmac-sha256", ""
		if next() != "{" {
			return nil, fmt.Errorf("want { after the name of key %d", len(found)+1)
		}
		for done := false; !done; {
			switch next() {
			case "algorithm":
				algorithm = strings.ToLower(next())
			case "secret":
				secret = next()
			case ";":
			case "}":
				done = true
			default:
				return nil, fmt.Errorf("want algorithm, secret or } in key %d", len(found)+1)
			}
		}
		if len(words) > 0 && words[0] == ";" {
			next()
		}
		key, err := newKey(name, algorithm, secret)
		if err != nil {
			return nil, err
		}
		if found[key.Name] != nil {
			return nil, fmt.Errorf("key %s is defined twice", key.Name)
		}
		found[key.Name] = key
	}
	return found, nil
}

// A keyFile is a watched file with keys.
type keyFile struct {
	path   string
	keys   atomic.Pointer[map[wire.Name]*tsig.Key]
	log    *slog.Logger
	cancel context.CancelFunc
	task   sync.WaitGroup
}

// pollInterval is how often a file is checked where the system has no events.
const pollInterval = 10 * time.Second

func newKeyFile(path string, log *slog.Logger) (*keyFile, error) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &keyFile{path: path, log: log, cancel: cancel}
	w := watch.New([]string{path}, watch.Options{Poll: pollInterval, Log: log})
	if err := f.read(); err != nil {
		cancel()
		w.Close()
		return nil, err
	}
	f.task.Go(func() {
		defer w.Close()
		for w.Wait(ctx) {
			if err := f.read(); err != nil {
				f.log.Error("tsig: Failed to read keys", "file", f.path, "error", err)
			} else {
				f.log.Info("tsig: Read keys", "file", f.path, "count", len(*f.keys.Load()))
			}
		}
	})
	return f, nil
}

func (f *keyFile) read() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	found, err := parseKeys(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.keys.Store(&found)
	return nil
}

// Stop implements config.Stopper.
func (f *keyFile) Stop() {
	f.cancel()
	f.task.Wait()
}

// Setup sets up the tsig directive: see TSIG.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := &TSIG{keys: keys{own: map[wire.Name]*tsig.Key{}}, log: b.Log}
	d := uses[0]
	zones, err := b.ZonesOr(d)
	t.zones = zones
	errs := []error{config.Once(uses), err, d.Options(
		corefile.Option{Usage: "secret NAME KEY", Set: func(o corefile.Directive) error {
			key, err := newKey(o.Args[0].Text, "hmac-sha256", o.Args[1].Text)
			if err != nil {
				return o.Errorf("%w", err)
			}
			if t.keys.own[key.Name] != nil {
				return o.Errorf("key %s is defined twice", key.Name)
			}
			t.keys.own[key.Name] = key
			return nil
		}},
		corefile.Option{Usage: "secrets FILE", Set: func(o corefile.Directive) error {
			path := b.Path(o.Args[0].Text)
			t.keys.paths = append(t.keys.paths, path)
			text, err := os.ReadFile(path)
			if err != nil {
				return o.Errorf("%w", err)
			}
			found, err := parseKeys(string(text))
			if err != nil {
				return o.Errorf("%s: %w", path, err)
			}
			t.keys.parsed = append(t.keys.parsed, found)
			return nil
		}},
		corefile.Option{Usage: "require QTYPE...", Set: func(o corefile.Directive) error {
			var err error
			t.all.types, err = words(o, func(a corefile.Token) error {
				typ, ok := wire.ParseType(a.Text)
				if !ok {
					return a.Errorf(o.Path, "unknown type %q", a.Text)
				}
				t.types = append(t.types, typ)
				return nil
			})
			return err
		}},
		corefile.Option{Usage: "require_opcode OPCODE...", Set: func(o corefile.Directive) error {
			var err error
			t.all.opcodes, err = words(o, func(a corefile.Token) error {
				opcode, ok := map[string]int{"QUERY": 0, "IQUERY": 1, "STATUS": 2, "NOTIFY": 4, "UPDATE": 5}[a.Text]
				if !ok {
					return a.Errorf(o.Path, "unknown opcode %q", a.Text)
				}
				t.opcodes = append(t.opcodes, opcode)
				return nil
			})
			return err
		}},
	)}
	b.Handle(t)
	b.OnStart(func(s *config.Start) error {
		type key struct{ path string }
		for _, path := range t.keys.paths {
			f, err := config.Keep(s, key{path}, func() (*keyFile, error) { return newKeyFile(path, b.Log) })
			if err != nil {
				return err
			}
			t.keys.files = append(t.keys.files, f)
		}
		t.keys.parsed = nil
		return nil
	})
	return errors.Join(errs...)
}

// words calls add with each argument, unless the first one is all or none.
func words(o corefile.Directive, add func(corefile.Token) error) (all bool, err error) {
	if first := o.Args[0].Text; first == "all" || first == "none" {
		return first == "all", nil
	}
	var errs []error
	for _, a := range o.Args {
		errs = append(errs, add(a))
	}
	return false, errors.Join(errs...)
}
