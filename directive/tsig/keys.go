package tsig

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// newKey returns a key from its texts.
func newKey(name, algorithm, secret string) (*tsig.Key, error) {
	n, err := wire.ParseName(name)
	if err != nil {
		return nil, fmt.Errorf("not a name of a key: %w", err)
	}
	a, err := wire.ParseName(algorithm)
	if err != nil || !tsig.Known(a) {
		return nil, fmt.Errorf("key %s: unknown algorithm, "+
			"want hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512", n)
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

// A keyFile is a file with keys, which is watched from the start on.
type keyFile struct {
	path string
	keys atomic.Pointer[map[wire.Name]*tsig.Key]
	log  *slog.Logger
	task *follow.Task
}

// pollInterval is how often a file is checked where the system has no events.
const pollInterval = 10 * time.Second

// newKeyFile reads a file.
func newKeyFile(path string, log *slog.Logger) (*keyFile, error) {
	f := &keyFile{path: path, log: log}
	return f, f.read()
}

// start reads the file again, and whenever it has changed.
func (f *keyFile) start() error {
	w := watch.New([]string{f.path}, watch.Options{Poll: pollInterval, Log: f.log})
	if err := f.read(); err != nil {
		w.Close()
		return err
	}

	f.task = follow.Go(func(ctx context.Context) {
		defer w.Close()
		for w.Wait(ctx) {
			if err := f.read(); err != nil {
				f.log.Error("tsig: Failed to read keys", "file", f.path, "error", err)
			} else {
				f.log.Info("tsig: Read keys", "file", f.path, "count", len(*f.keys.Load()))
			}
		}
	})
	return nil
}

func (f *keyFile) read() error {
	text, err := watch.ReadKey(f.path)
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
func (f *keyFile) Stop() { f.task.Stop() }
