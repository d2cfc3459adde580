package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// variables rejects package-level variables that change after the program has
// started. A variable is allowed if nothing in the module assigns to it or to a
// part of it, passes on its address, or calls a method or function that modifies
// it. So tables, errors, compiled expressions and embedded files are allowed.
// Types that exist to be modified (sync, atomic, channels) are always rejected.
//
// The analysis follows a variable through `p := &v` and through functions and
// methods of this module, but not through struct fields, interfaces or results.
// It finds accidents, not deliberate circumvention.
func variables(c *checker) (bad []string) {
	e := effects{c: c, params: map[types.Object]param{}, writes: map[param]bool{}, alias: map[types.Object]types.Object{}}
	vars := e.declare()
	for _, p := range c.m.packages {
		for _, f := range p.source() {
			e.walk(f)
		}
	}
	e.settle()

	report := func(v *types.Var, pos token.Pos, why string) {
		bad = append(bad, fmt.Sprintf("%s: package variable %s %s", c.m.line(pos), v.Name(), why))
	}
	for _, v := range vars {
		if why := changeable(v.Type(), nil); why != "" {
			report(v, v.Pos(), why)
		}
	}
	for _, u := range e.uses {
		v, ok := u.root.(*types.Var)
		if !ok || !slices.Contains(vars, v) {
			continue
		}
		if u.callee == nil {
			report(v, u.pos, u.how)
		} else if e.writes[param{u.callee, u.arg}] {
			report(v, u.pos, "is changed by "+u.callee.Name())
		}
	}
	return bad
}

// immutable types lock or cache internally, which callers cannot observe.
var immutable = []string{
	"regexp.Regexp", "strings.Replacer", "embed.FS",
	"text/template.Template", "html/template.Template",
	"encoding/base32.Encoding", "encoding/base64.Encoding",
	"time.Location", "net/netip.Addr", "net/netip.Prefix",
	// The kernel bounds the instances of file events of a user, so that all Watchers of a process share one.
	"github.com/seamark/seamark/sys/watch.system",
}

// changeable returns the reason why a type is not allowed at package level, or
// "".
func changeable(t types.Type, seen []types.Type) string {
	t = types.Unalias(t)
	if slices.Contains(seen, t) {
		return ""
	}
	seen = append(seen, t)
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil {
		if slices.Contains(immutable, typeName(n)) {
			return ""
		}
		if p := n.Obj().Pkg().Path(); p == "sync" || p == "sync/atomic" {
			return "holds a " + typeName(n)
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Chan:
		return "holds a channel"
	case *types.Pointer:
		if _, ok := u.Elem().Underlying().(*types.Basic); ok && u.Elem() != types.Typ[types.Invalid] {
			return "is a pointer to a " + u.Elem().String()
		}
		return changeable(u.Elem(), seen)
	case *types.Slice:
		return changeable(u.Elem(), seen)
	case *types.Array:
		return changeable(u.Elem(), seen)
	case *types.Map:
		return changeable(u.Elem(), seen)
	case *types.Struct:
		for f := range u.Fields() {
			if why := changeable(f.Type(), seen); why != "" {
				return why
			}
		}
	}
	return ""
}

func typeName(n *types.Named) string { return n.Obj().Pkg().Path() + "." + n.Obj().Name() }

// A param is a parameter or receiver through which a function may modify its
// argument.
type param struct {
	fn  *types.Func
	arg int // receiver: -1
}

// A use is a modification of a variable, or a call that may modify it.
type use struct {
	pos    token.Pos
	root   types.Object // the variable at the root of the expression
	how    string       // the kind of modification
	callee *types.Func  // the function called
	arg    int
}

// effects collects what a module does to variables and parameters.
type effects struct {
	c      *checker
	uses   []use
	params map[types.Object]param        // variables that are parameters of our functions
	writes map[param]bool                // parameters that are modified; settle extends it
	alias  map[types.Object]types.Object // p := &v, p := v of a reference type
	benign map[*ast.UnaryExpr]bool       // an address that the analysis follows
}

// declare collects the module's package-level variables and its functions'
// parameters.
func (e *effects) declare() (vars []*types.Var) {
	e.benign = map[*ast.UnaryExpr]bool{}
	for _, p := range e.c.m.packages {
		for _, f := range p.source() {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.GenDecl:
					vars = append(vars, e.declared(d)...)
				case *ast.FuncDecl:
					fn, ok := e.c.info.Defs[d.Name].(*types.Func)
					if !ok {
						continue
					}
					sig := fn.Signature()
					if r := sig.Recv(); r != nil {
						e.params[r] = param{fn, -1}
					}
					for i := range sig.Params().Len() {
						e.params[sig.Params().At(i)] = param{fn, i}
					}
				}
			}
		}
	}
	return vars
}

func (e *effects) declared(d *ast.GenDecl) (vars []*types.Var) {
	if d.Tok != token.VAR {
		return nil
	}
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if v, ok := e.c.info.Defs[name].(*types.Var); ok && name.Name != "_" {
				vars = append(vars, v)
			}
		}
	}
	return vars
}

func (e *effects) walk(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				e.define(n)
				break
			}
			for _, x := range n.Lhs {
				e.change(x, "is assigned to")
			}
		case *ast.IncDecStmt:
			e.change(n.X, "is assigned to")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				e.change(n.Key, "is assigned to")
				e.change(n.Value, "is assigned to")
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND && !e.benign[n] {
				if obj, _, aliased := e.root(n.X); obj != nil && !aliased && e.params[obj].fn == nil {
					e.uses = append(e.uses, use{pos: n.Pos(), root: obj, how: "has its address taken"})
				}
			}
		case *ast.CallExpr:
			e.call(n)
		}
		return true
	})
}

// define records `p := &v` and `p := v` if p then shares v's memory.
func (e *effects) define(n *ast.AssignStmt) {
	if len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, x := range n.Rhs {
		id, ok := n.Lhs[i].(*ast.Ident)
		obj, _, _ := e.root(x)
		if !ok || obj == nil || e.c.info.Defs[id] == nil || !e.shares(x) {
			continue
		}
		e.alias[e.c.info.Defs[id]] = obj
		if u, ok := ast.Unparen(x).(*ast.UnaryExpr); ok {
			e.benign[u] = true
		}
	}
}

// change records a write to the variable at the root of x.
func (e *effects) change(x ast.Expr, how string) {
	if x == nil {
		return
	}
	obj, through, aliased := e.root(x)
	if obj == nil {
		return
	}
	if p, ok := e.params[obj]; ok {
		if through {
			e.writes[p] = true
		}
		return
	}
	if through || !aliased {
		e.uses = append(e.uses, use{pos: x.Pos(), root: obj, how: how})
	}
}

// writers are prefixes of the names of functions in the standard library that
// modify their first argument, by package.
var writers = map[string][]string{
	"sort":   {"Slice", "Sort", "Stable", "Strings", "Ints", "Float64s"},
	"slices": {"Sort", "Reverse", "Delete", "Insert", "Replace", "Compact"},
	"maps":   {"Copy", "DeleteFunc", "Insert"},
}

func (e *effects) call(n *ast.CallExpr) {
	fun := ast.Unparen(n.Fun)
	switch x := fun.(type) {
	case *ast.IndexExpr:
		fun = x.X
	case *ast.IndexListExpr:
		fun = x.X
	}
	var name *ast.Ident
	var recv ast.Expr
	switch x := fun.(type) {
	case *ast.Ident:
		name = x
	case *ast.SelectorExpr:
		name = x.Sel
		if s := e.c.info.Selections[x]; s != nil && s.Kind() == types.MethodVal {
			recv = x.X
		}
	}
	if name == nil {
		return
	}
	switch callee := e.c.info.Uses[name].(type) {
	case *types.Builtin:
		e.builtin(callee.Name(), n.Args)
	case *types.Func:
		e.function(callee.Origin(), recv, n.Args)
	}
}

func (e *effects) builtin(name string, args []ast.Expr) {
	switch name {
	case "delete", "clear", "copy":
		e.change(&ast.StarExpr{Star: args[0].Pos(), X: args[0]}, "is changed by "+name)
	case "append": // append(v[:n], …) modifies v; append(v, …) only returns
		if s, ok := ast.Unparen(args[0]).(*ast.SliceExpr); ok {
			e.change(&ast.StarExpr{Star: s.Pos(), X: s}, "is changed by append")
		}
	}
}

func (e *effects) function(callee *types.Func, recv ast.Expr, args []ast.Expr) {
	own := callee.Pkg() != nil && within([]string{modulePath}, callee.Pkg().Path())
	std := callee.Pkg() != nil && !own && standard(callee.Pkg().Path())
	sig := callee.Signature()

	if recv != nil {
		if std && pointerMethod(callee) {
			e.change(&ast.StarExpr{Star: recv.Pos(), X: recv}, "is changed by "+callee.Name())
		}
		obj, through, _ := e.root(recv)
		if own && obj != nil && (through || e.shares(recv) || e.params[obj].fn == nil) {
			e.uses = append(e.uses, use{pos: recv.Pos(), root: obj, callee: callee, arg: -1})
		}
	}
	if std && len(args) > 0 && recv == nil {
		for _, prefix := range writers[callee.Pkg().Path()] {
			if strings.HasPrefix(callee.Name(), prefix) {
				e.change(&ast.StarExpr{Star: args[0].Pos(), X: args[0]}, "is changed by "+callee.Name())
				break
			}
		}
	}
	if !own {
		return
	}
	for i, x := range args {
		obj, _, _ := e.root(x)
		if obj == nil || !e.shares(x) {
			continue
		}
		e.uses = append(e.uses, use{pos: x.Pos(), root: obj, callee: callee, arg: min(i, sig.Params().Len()-1)})
		if u, ok := ast.Unparen(x).(*ast.UnaryExpr); ok {
			e.benign[u] = true
		}
	}
}

// pointerMethod reports whether a method of the standard library has a pointer
// receiver, of a type that is not immutable, and so may modify it.
func pointerMethod(fn *types.Func) bool {
	p, ok := types.Unalias(fn.Signature().Recv().Type()).(*types.Pointer)
	if !ok {
		return false
	}
	n, ok := types.Unalias(p.Elem()).(*types.Named)
	return ok && !slices.Contains(immutable, typeName(n))
}

// settle propagates modifications from callees to callers until there are no new
// ones.
func (e *effects) settle() {
	for grown := true; grown; {
		grown = false
		for _, u := range e.uses {
			p, ok := e.params[u.root]
			if ok && u.callee != nil && e.writes[param{u.callee, u.arg}] && !e.writes[p] {
				e.writes[p] = true
				grown = true
			}
		}
	}
}

// root returns the variable at the root of an expression, whether the path from
// there contains a pointer, slice or map, and whether it started at an alias of
// the variable.
func (e *effects) root(x ast.Expr) (obj types.Object, through, aliased bool) {
	for {
		switch y := x.(type) {
		case *ast.ParenExpr:
			x = y.X
		case *ast.UnaryExpr:
			if y.Op != token.AND {
				return nil, false, false
			}
			x = y.X
		case *ast.StarExpr:
			through, x = true, y.X
		case *ast.TypeAssertExpr:
			through, x = true, y.X
		case *ast.IndexExpr:
			through, x = through || e.shares(y.X), y.X
		case *ast.SliceExpr:
			through, x = through || e.shares(y.X), y.X
		case *ast.SelectorExpr:
			if id, ok := y.X.(*ast.Ident); ok {
				if _, ok := e.c.info.Uses[id].(*types.PkgName); ok {
					x = y.Sel
					continue
				}
			}
			if s := e.c.info.Selections[y]; s != nil {
				through = through || s.Indirect()
			}
			x = y.X
		case *ast.Ident:
			v, ok := e.c.info.Uses[y].(*types.Var)
			if !ok {
				return nil, false, false
			}
			obj = v.Origin()
			for i := 0; e.alias[obj] != nil && i < 10; i++ {
				obj, aliased = e.alias[obj], true
			}
			return obj, through, aliased
		default:
			return nil, false, false
		}
	}
}

// shares reports whether a copy of x's value shares memory with x.
func (e *effects) shares(x ast.Expr) bool {
	if _, ok := ast.Unparen(x).(*ast.SliceExpr); ok {
		return true // of an array too
	}
	t := e.c.info.TypeOf(x)
	if t == nil {
		return false
	}
	switch t.Underlying().(type) {
	case *types.Pointer, *types.Slice, *types.Map:
		return true
	}
	return false
}
