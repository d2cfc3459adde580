package tsig

import (
	"errors"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/wire"
)

// Setup sets up the tsig directive: see TSIG.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := &TSIG{own: map[wire.Name]*tsig.Key{}}
	d := uses[0]
	zones, err := b.ZonesOr(d)
	t.zones = zones
	var require corefile.Directive // the last line of the option
	errs := []error{config.Once(uses), err, d.Options(
		corefile.Option{Usage: "secret NAME KEY", Set: t.addSecret},
		corefile.Option{Usage: "secrets FILE", Set: func(o corefile.Directive) error {
			f, err := newKeyFile(b.Path(o.Args[0].Text), b.Log)
			if err != nil {
				return o.Errorf("%w", err)
			}
			b.WarnExposed(o, f.path)
			t.files = append(t.files, f)
			return nil
		}},
		corefile.Option{Usage: "require QTYPE...", Default: "none", Set: func(o corefile.Directive) error {
			require = o
			return t.addTypes(o)
		}},
		corefile.Option{Usage: "require_opcode OPCODE...", Default: "none", Set: t.addOpcodes},
	)}
	if have, other, ok := t.oneTransfer(); ok {
		b.Warn(require.Errorf("%s without %s: an unsigned query of type %[2]s gets the whole zone, too; write both", have, other))
	}

	b.Handle(t)
	b.OnStart(func(s *config.Start) error {
		for i, f := range t.files {
			kept, err := config.Keep(s, f.path, func() (*keyFile, error) { return f, f.start() })
			if err != nil {
				return err
			}
			t.files[i] = kept
		}
		return nil
	})
	return errors.Join(errs...)
}

func (t *TSIG) addSecret(o corefile.Directive) error {
	key, err := newKey(o.Args[0].Text, "hmac-sha256", o.Args[1].Text)
	if err != nil {
		return o.Errorf("%w", err)
	}
	if t.own[key.Name] != nil {
		return o.Errorf("key %s is defined twice", key.Name)
	}
	t.own[key.Name] = key
	return nil
}

func (t *TSIG) addTypes(o corefile.Directive) (err error) {
	t.all.types, err = words(o, func(a corefile.Token) error {
		typ, ok := wire.ParseType(a.Text)
		if !ok {
			return a.Errorf(o.Path, "unknown type %q", a.Text)
		}
		t.types = append(t.types, typ)
		return nil
	})
	return err
}

// oneTransfer reports whether one type of transfer must be signed, and the other not.
func (t *TSIG) oneTransfer() (have, other wire.Type, ok bool) {
	have, other = wire.TypeAXFR, wire.TypeIXFR
	if !slices.Contains(t.types, have) {
		have, other = other, have
	}
	return have, other, !t.all.types && slices.Contains(t.types, have) && !slices.Contains(t.types, other)
}

func (t *TSIG) addOpcodes(o corefile.Directive) (err error) {
	t.all.opcodes, err = words(o, func(a corefile.Token) error {
		opcode, ok := map[string]int{"QUERY": 0, "IQUERY": 1, "STATUS": 2, "NOTIFY": 4, "UPDATE": 5}[a.Text]
		if !ok {
			return a.Errorf(o.Path, "unknown opcode %q", a.Text)
		}
		t.opcodes = append(t.opcodes, opcode)
		return nil
	})
	return err
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
