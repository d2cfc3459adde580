//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/miekg/dns"
)

const (
	// manyObjects is the number of ConfigMaps with a record each, in the first namespace of the population,
	// whose memory is measured.
	manyObjects = 10000
	// fewObjects is the number of those before them: what a watch needs for any objects is no part of a record.
	fewObjects = 1000
)

// An objectRecord is a ConfigMap with one record.
type objectRecord struct{ namespace, name, address string }

func (b *bench) objectRecord(n int) objectRecord {
	return objectRecord{b.pop.namespace(0), fmt.Sprint("app-", n), "192.0.2.1"}
}

func (o objectRecord) host() string { return o.name + ".objects.test" }

func (o objectRecord) path() string {
	return "/api/v1/namespaces/" + o.namespace + "/configmaps/" + o.name
}

func (o objectRecord) lookup() *lookup {
	return newLookup(o.host(), dns.TypeA, false, dns.RcodeSuccess, "A "+o.address)
}

// manifest returns the object as JSON on one line.
func (o objectRecord) manifest() string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "namespace": %q, `+
		`"labels": {"seamark.io/dns": "records"}}, "data": {"hosts": "%s %s"}}`, o.name, o.namespace, o.address, o.host())
}

// data returns the bytes that the object consists of: its names, its record's name in wire form, and the address.
func (o objectRecord) data() int { return len(o.namespace) + len(o.name) + len(o.host()) + 2 + 4 }

// objects measures the memory of records of 10,000 objects, and how soon the change of one is answered.
func (b *bench) objects(ctx context.Context) error {
	defer b.stopServers()
	p := b.stock(b.source(), 1)
	p.values["pprof"], p.values["directives"] = true, fmt.Sprintf("    records objects.test {\n        objects {\n"+
		"            configmaps\n            delegate %s objects.test\n            %s\n        }\n    }",
		b.pop.namespace(0), b.source())
	s, err := b.start(ctx, p, b.pop.last())
	if err != nil {
		return err
	}

	before, _, err := b.heapWith(ctx, s, 0, fewObjects)
	if err != nil {
		return err
	}
	after, data, err := b.heapWith(ctx, s, fewObjects, fewObjects+manyObjects)
	if err != nil {
		return err
	}
	b.number("objects/heap", "heap of a record of an object, beyond its data", "bytes",
		(after-before-float64(data))/manyObjects)
	return b.changeObjects(ctx, s)
}

// heapWith creates the objects with the numbers from from up to to, and returns the heap with them and the size of
// their data.
func (b *bench) heapWith(ctx context.Context, s *server, from, to int) (heap float64, data int, err error) {
	if data, err = b.createObjects(ctx, from, to); err != nil {
		return 0, 0, err
	}
	if err = s.await(ctx, b.objectRecord(to-1).lookup()); err != nil {
		return 0, 0, err
	}
	if err = s.awaitMetric(ctx, "seamark_records_object_records", float64(to)); err != nil {
		return 0, 0, err
	}
	heap, err = b.heap(ctx, s)
	return heap, data, err
}

// createObjects writes objects into the API server, and returns the size of their data.
func (b *bench) createObjects(ctx context.Context, from, to int) (data int, err error) {
	dir := b.file(fmt.Sprint("objects-", from))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	err = writeFile(filepath.Join(dir, "objects.yaml"), func(w io.Writer) {
		for n := from; n < to; n++ {
			o := b.objectRecord(n)
			data += o.data()
			if n > from {
				fmt.Fprintln(w, "---")
			}
			fmt.Fprintln(w, o.manifest())
		}
	})
	if err != nil {
		return 0, err
	}
	if text, err := exec.CommandContext(ctx, b.api.program, "apply", b.api.kubeconfig, dir).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("writing %d ConfigMaps: %w: %s", to-from, err, text)
	}
	return data, nil
}

// heap returns the bytes that are in use after a garbage collection, when the server has finished its work: the
// least of some, since work of another kind may be under way.
func (b *bench) heap(ctx context.Context, s *server) (float64, error) {
	if err := pause(ctx, b.settle()); err != nil {
		return 0, err
	}

	least := math.Inf(1)
	for range 5 { // what the first one finds in pools the second one frees
		profile, err := get(ctx, "http://"+s.at["pprof"].String()+"/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}

		// The figure is of the collection. One of /metrics would count what its page needs.
		_, text, _ := bytes.Cut(profile, []byte("\n# HeapAlloc = "))
		text, _, found := bytes.Cut(text, []byte("\n"))
		heap, err := strconv.ParseFloat(string(text), 64)
		if !found || err != nil {
			return 0, fmt.Errorf("%s: no size of the heap in its profile", s.name)
		}
		least = min(least, heap)
	}
	return least, nil
}

// changeObjects measures the times from the acknowledgements of changes to their answers.
func (b *bench) changeObjects(ctx context.Context, s *server) error {
	c, err := b.newChanger(ctx)
	if err != nil {
		return err
	}
	defer c.close()

	var milliseconds []float64
	for n := range 100 {
		o := b.objectRecord(n)
		o.address = newAddress(n).String()
		if _, err := fmt.Fprintln(c.command.in, o.path(), o.manifest()); err != nil {
			return err
		}
		if err := s.await(ctx, o.lookup()); err != nil {
			return err
		}
		answered := clock()
		acknowledged, err := c.acknowledged(ctx, n)
		if err != nil {
			return err
		}
		milliseconds = append(milliseconds, (answered-acknowledged).Seconds()*1e3)
	}
	b.number("objects/change", "change of a record of an object, acknowledged to answered", "ms", milliseconds...)
	return nil
}
