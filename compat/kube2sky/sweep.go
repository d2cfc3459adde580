package kube2sky

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is how many keys of a comparison are read at once.
const page = 1000

// sweep compares what is ours in etcd with what is wanted, page by page. What
// differs becomes work, and so does what is not there. It changes nothing itself.
func (w *writer) sweep(ctx context.Context, s *session) error {
	fine := map[place]struct{}{}
	now := look{state: w.state, fine: fine}
	total := int64(0)
	for from, end := w.layout.marks, clientv3.GetPrefixRangeEnd(w.layout.marks); ; {
		answer, err := s.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(page)))
		if err != nil {
			return err
		}
		marks := answer.Responses[0].GetResponseRange()
		total += int64(len(marks.Kvs))
		var paths, sums []string
		for _, kv := range marks.Kvs {
			paths, sums = append(paths, string(kv.Key[len(w.layout.marks):])), append(sums, string(kv.Value))
		}
		tree, err := w.values(ctx, s, paths)
		if err != nil {
			return err
		}
		for i, path := range paths {
			now.take(w.layout.placeOf(path), path, sums[i], tree)
		}
		if !marks.More {
			break
		}
		from = w.layout.marks + paths[len(paths)-1] + "\x00"
	}
	now.close()
	w.keys.Store(total)
	w.state.all(fine)
	return nil
}

// values reads the keys of paths, which are sorted. Whole runs are read, where all
// that can lie between is of the same kind: elsewhere there may be anything.
func (w *writer) values(ctx context.Context, s *session, paths []string) (map[string]string, error) {
	tree := make(map[string]string, len(paths))
	for len(paths) > 0 {
		kind := w.layout.placeOf(paths[0]).kind
		n := 1
		for n < len(paths) && w.layout.placeOf(paths[n]).kind == kind {
			n++
		}
		if kind != ofNobody {
			answer, err := s.read(ctx, clientv3.OpGet(w.layout.tree+paths[0], clientv3.WithRange(w.layout.tree+paths[n-1]+"\x00")))
			if err != nil {
				return nil, fmt.Errorf("comparing: %w", err)
			}
			for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
				tree[string(kv.Key[len(w.layout.tree):])] = string(kv.Value)
			}
		}
		paths = paths[n:]
	}
	return tree, nil
}

// A look is the place that a comparison has come to.
type look struct {
	state  *state
	fine   map[place]struct{} // places that are as wanted
	at     place
	left   []record // of what is wanted there: what has not been found
	wrong  bool
	inside bool
}

// take takes the next of the paths that are marked.
func (l *look) take(p place, path, mark string, tree map[string]string) {
	if !l.inside || p != l.at {
		l.close()
		l.at, l.left, l.wrong, l.inside = p, l.state.wanted(p), false, true
	}
	value, there := tree[path]
	if len(l.left) == 0 || l.left[0].path != path || !there || value != l.left[0].value || mark != sum(value) {
		l.wrong = true
		return
	}
	l.left = l.left[1:]
}

// close ends the look at a place.
func (l *look) close() {
	switch {
	case !l.inside:
	case l.wrong || len(l.left) > 0:
		l.state.add(l.at)
	default:
		l.fine[l.at] = struct{}{}
	}
	l.inside = false
}
