package kube2sky

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is the number of keys that one request of a comparison returns.
const page = 1000

// sweep compares the owned keys in etcd with the wanted records, page by page. It
// queues the groups that differ and those without keys. It writes nothing.
func (w *writer) sweep(ctx context.Context, s *session) error {
	current := map[keyGroup]struct{}{}
	now := comparison{state: w.state, current: current}
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
			paths = append(paths, string(kv.Key[len(w.layout.marks):]))
			sums = append(sums, string(kv.Value))
		}

		tree, err := w.values(ctx, s, paths)
		if err != nil {
			return err
		}
		for i, path := range paths {
			now.take(w.layout.groupOf(path), path, sums[i], tree)
		}

		if !marks.More {
			break
		}
		from = w.layout.marks + paths[len(paths)-1] + "\x00"
	}
	now.close()
	w.keys.Store(total)
	w.state.addAll(current)
	return nil
}

// values reads the keys of paths, which are sorted. It reads ranges only between
// paths of the same kind: elsewhere other programs may have any number of keys.
func (w *writer) values(ctx context.Context, s *session, paths []string) (map[string]string, error) {
	tree := make(map[string]string, len(paths))
	for len(paths) > 0 {
		kind := w.layout.groupOf(paths[0]).kind
		n := 1
		for n < len(paths) && w.layout.groupOf(paths[n]).kind == kind {
			n++
		}
		if kind != unknownGroup {
			end := clientv3.WithRange(w.layout.tree + paths[n-1] + "\x00")
			answer, err := s.read(ctx, clientv3.OpGet(w.layout.tree+paths[0], end))
			if err != nil {
				return nil, fmt.Errorf("comparing keys: %w", err)
			}
			for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
				tree[string(kv.Key[len(w.layout.tree):])] = string(kv.Value)
			}
		}
		paths = paths[n:]
	}
	return tree, nil
}

// A comparison compares the keys of one group after the other.
type comparison struct {
	state   *state
	current map[keyGroup]struct{} // groups whose keys are as wanted
	at      keyGroup
	left    []record // wanted records that have not been found
	wrong   bool
	inside  bool
}

// take compares the next path that has a mark.
func (l *comparison) take(p keyGroup, path, mark string, tree map[string]string) {
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

// close ends the comparison of a group.
func (l *comparison) close() {
	switch {
	case !l.inside:
	case l.wrong || len(l.left) > 0:
		l.state.queue.add(l.at)
	default:
		l.current[l.at] = struct{}{}
	}
	l.inside = false
}
