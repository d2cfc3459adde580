package geoip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"

	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/watch"
)

const (
	pollInterval = 5 * time.Second
	// maxSize is the largest size of a file in bytes. MaxMind's largest database has 400 MB.
	maxSize = 1 << 30
)

// A database is the content of a file, which is read again when it has changed. It
// survives reloads.
type database struct {
	*follow.Task
	path    string
	content atomic.Pointer[content]
	log     *slog.Logger
}

// A content is the database in one version of the file.
type content struct {
	*maxminddb.Reader
	fields map[string]field // by key
	failed atomic.Bool      // an error has been logged
}

func newDatabase(path string, log *slog.Logger) (*database, error) {
	d := &database{path: path, log: log}
	w := watch.New([]string{path}, watch.Options{Poll: pollInterval, Log: log})
	if err := d.load(); err != nil {
		w.Close()
		return nil, err
	}
	d.Task = follow.Go(func(ctx context.Context) { d.follow(ctx, w) })
	return d, nil
}

func (d *database) follow(ctx context.Context, w *watch.Watcher) {
	defer w.Close()
	for w.Wait(ctx) {
		err := d.load()
		// A server that allocates little collects garbage every two minutes only, and the old
		// database may be most of its memory.
		debug.FreeOSMemory()
		if err != nil {
			d.log.Error("geoip: Rejected a new database, keeping the old one", "file", d.path, "error", err)
			continue
		}
		d.log.Info("geoip: Loaded a new database", "file", d.path, "built", d.content.Load().Metadata.BuildTime().UTC())
	}
}

// load reads the file. It is not mapped into memory: a program that writes into a mapped
// file, or shortens it, would change answers or end the process.
func (d *database) load() error {
	data, err := watch.ReadBytes(d.path, maxSize)
	if err != nil {
		return fmt.Errorf("reading %s: %w", d.path, err)
	}
	c, err := parse(d.path, data)
	if err == nil {
		d.content.Store(c)
	}
	return err
}

func parse(path string, data []byte) (*content, error) {
	r, err := maxminddb.OpenBytes(data)
	if err != nil {
		return nil, invalid(path, err)
	}
	return newContent(path, r)
}

// check returns an error unless the file has a database. It reads only a part of the file, which it maps into
// memory: a program that shortens the file meanwhile causes a fault.
func check(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = invalid(path, errors.New("the file has changed meanwhile"))
		default:
			panic(fault)
		}
	}()
	if info, err := os.Stat(path); err != nil {
		return fmt.Errorf("reading %s: %w", path, watch.Plain(err))
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("reading %s: %w", path, watch.ErrNotRegular)
	}
	r, err := maxminddb.Open(path)
	if err != nil {
		return invalid(path, err)
	}
	_, err = newContent(path, r)
	return errors.Join(err, r.Close())
}

func invalid(path string, err error) error {
	return fmt.Errorf("reading %s: want a complete database in MaxMind's format: %w", path, watch.Plain(err))
}

// newContent checks the type of a database, and looks up an address in it.
func newContent(path string, r *maxminddb.Reader) (*content, error) {
	kind := r.Metadata.DatabaseType
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(kind, w) })
	}

	c := &content{Reader: r}
	switch {
	case has("City", "Country", "Enterprise"):
		c.fields = placeFields
	case has("ASN", "ISP"):
		c.fields = networkFields
	default:
		return nil, fmt.Errorf("reading %s: want a database of cities, countries or autonomous systems, "+
			"got the type %q", path, kind)
	}

	if err := r.Lookup(netip.IPv4Unspecified()).Err(); err != nil {
		return nil, invalid(path, err)
	}
	return c, nil
}

// value returns the value of a key for an address. It returns false if databases of this
// type do not have the key.
func (d *database) value(key string, a netip.Addr) (string, bool) {
	c := d.content.Load()
	f, ok := c.fields[key]
	if !ok {
		return "", false
	}
	if a.Is6() && c.Metadata.IPVersion == 4 {
		return "", true // as CoreDNS
	}

	value, err := c.text(f.path, a)
	if err != nil {
		if c.failed.CompareAndSwap(false, true) {
			d.log.Error("geoip: Database is damaged, some values are empty",
				"file", d.path, "key", key, "client", a, "error", err)
		}
		return "", true
	}
	return cmp.Or(value, f.zero), true
}

// A field is where a record of the database has the value of a key.
type field struct {
	path []any
	zero string // for addresses without a value
}

// networkFields and placeFields are the fields of the two types of databases.
var (
	networkFields = map[string]field{
		"geoip/asn/number": {[]any{"autonomous_system_number"}, "0"},
		"geoip/asn/org":    {[]any{"autonomous_system_organization"}, ""},
	}
	placeFields = map[string]field{
		"geoip/city/name":                    {[]any{"city", "names", "en"}, ""},
		"geoip/country/code":                 {[]any{"country", "iso_code"}, ""},
		"geoip/country/name":                 {[]any{"country", "names", "en"}, ""},
		"geoip/country/is_in_european_union": {[]any{"country", "is_in_european_union"}, "false"},
		"geoip/continent/code":               {[]any{"continent", "code"}, ""},
		"geoip/continent/name":               {[]any{"continent", "names", "en"}, ""},
		"geoip/latitude":                     {[]any{"location", "latitude"}, ""},
		"geoip/longitude":                    {[]any{"location", "longitude"}, ""},
		"geoip/timezone":                     {[]any{"location", "time_zone"}, ""},
		"geoip/postalcode":                   {[]any{"postal", "code"}, ""},
		"geoip/subdivisions/code":            {[]any{"subdivisions"}, ""},
	}
)

// text returns the value at a path in the record of an address, "" if there is none.
func (c *content) text(path []any, a netip.Addr) (string, error) {
	r := c.Lookup(a)
	if path[0] == "subdivisions" {
		var all []struct {
			Code string `maxminddb:"iso_code"`
		}
		if err := r.DecodePath(&all, path...); err != nil {
			return "", err
		}
		var codes []string
		for _, s := range all {
			codes = append(codes, s.Code)
		}
		return strings.Join(codes, ","), nil
	}

	var value any
	if err := r.DecodePath(&value, path...); err != nil {
		return "", err
	}

	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	}
	return "", fmt.Errorf("value %v has the unknown type %[1]T", value)
}
