package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
)

// origin implements cluster.ReadOrigin. It reads the file of the object again: items do not
// keep the metadata. Its caller is not the goroutine that owns the folder.
func (f *folder) origin(ctx context.Context, kind cluster.Kind, key cluster.Key) (o cluster.Origin, err error) {
	state := f.published.Load()
	if state == nil {
		return o, errors.New("the folder has not been read yet")
	}
	p, ok := state[kind][key]
	if !ok && kind == cluster.Slices {
		p, ok = state[cluster.ImportSlices][key]
	}
	if !ok {
		return o, errors.New("the folder does not have the object any more")
	}

	o.File = fmt.Sprintf("%s:%d", f.path(p.file), p.line)
	switch {
	case p.kind == kind.ObjectKind() && p.key == key:
	case kind == cluster.Namespaces:
		return o, errors.New("the folder has objects in the namespace, but not the Namespace itself")
	case p.kind == "Service":
		return o, errors.New("made from the Pods that the Service selects")
	default:
		return o, fmt.Errorf("made from %s %s", p.kind, p.key)
	}

	var mu sync.Mutex
	found, line := false, int32(0)
	d := f.newDecoder(p.file, newShapes())
	d.decoded = func(raw json.RawMessage, it *item) {
		if it.kind != p.kind || it.key != p.key {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !found || it.line < line { // the first one counts
			found, line = true, it.line
			o.ResourceVersion, o.UID, o.Created = metadata(raw)
		}
	}
	switch _, err = f.decode(ctx, p.file, nil, d); {
	case ctx.Err() != nil:
		return o, errors.New("reading the file takes too long")
	case err == nil && !found:
		err = errors.New("the file does not have the object any more")
	}
	return o, err
}

// reread implements cluster.ReadObject.
func (f *folder) reread(_ context.Context, kind cluster.Kind, key cluster.Key) (cluster.Object, error) {
	state := f.published.Load()
	if state == nil {
		return nil, errors.New("the folder has not been read yet")
	}
	return state[kind][key].Object, nil
}

// metadata returns the resourceVersion, the uid and the creationTimestamp of an object, if they
// have the right types.
func metadata(raw json.RawMessage) (version, uid string, created time.Time) {
	var object struct {
		Metadata struct{ ResourceVersion, UID, CreationTimestamp any }
	}
	_ = json.Unmarshal(raw, &object) // it has been decoded before
	version, _ = object.Metadata.ResourceVersion.(string)
	uid, _ = object.Metadata.UID.(string)
	text, _ := object.Metadata.CreationTimestamp.(string)
	created, _ = time.Parse(time.RFC3339, text)
	return version, uid, created
}
