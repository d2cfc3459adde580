package archtest

import (
	"fmt"
	"go/types"
	"path"
	"slices"
	"strings"
)

// lower lists the files of a package that must not refer to its other files.
var lower = map[string][]string{
	// The index knows nothing of queries.
	"directive/kubernetes": {
		"addrset", "alias", "amend", "build", "change", "claims", "digest", "entry", "external_entry", "index", "latency", "listed",
		"merge", "names", "objects", "pods", "ports", "publish", "reverse", "selection", "table", "undo",
	},
}

// layers rejects references from the lower files of a package to the others.
func layers(c *checker, lower map[string][]string) (bad []string) {
	for id, o := range c.info.Uses {
		if o.Pkg() == nil || !o.Pos().IsValid() {
			continue
		}
		if _, imported := o.(*types.PkgName); imported {
			continue
		}
		from, to := c.m.fset.Position(id.Pos()).Filename, c.m.fset.Position(o.Pos()).Filename
		isLower := func(file string) bool {
			return slices.Contains(lower[path.Dir(file)], strings.TrimSuffix(path.Base(file), ".go"))
		}
		if isLower(from) && path.Dir(from) == path.Dir(to) && !isLower(to) {
			bad = append(bad, fmt.Sprintf("%s refers to %s of %s", c.m.at(id), o.Name(), path.Base(to)))
		}
	}
	return bad
}
