package dns

import (
	"testing"

	"github.com/seamark/seamark/wire"
)

// A client's own question has no depth; what it leads to has one.
func TestDepth(t *testing.T) {
	var depths []int
	ask := serve(func(q *Query) Verdict {
		depths = append(depths, q.Depth())
		if q.Labels() > 1 {
			q.SubQuery(q.Name()[q.LabelOffset(1):], wire.TypeA)
		}
		return Done
	})
	newRig(t, 1, map[string]*Chain{".": chain(ask)}).ask(question("a.b.c.", 1))
	if len(depths) != 3 || depths[0] != 0 || depths[1] != 1 || depths[2] != 2 {
		t.Error(depths)
	}
}
