package template

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// check reports names in a template that do not exist: fields of the data,
// groups of the rule's regular expressions, and vars. So no query fails because
// of them. Inside range and with, where the dot changes, only names after $ are
// checked.
func (r *rule) check(root *parse.ListNode) []error {
	c := checker{rule: r}
	c.list(root, true)
	return c.errs
}

// A checker checks one template. dot parameters report whether the dot is the
// data.
type checker struct {
	rule *rule
	errs []error
}

func (c *checker) list(l *parse.ListNode, dot bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			c.pipe(n.Pipe, dot)
		case *parse.IfNode:
			c.branch(&n.BranchNode, dot, dot)
		case *parse.WithNode:
			c.branch(&n.BranchNode, dot, false)
		case *parse.RangeNode:
			c.branch(&n.BranchNode, dot, false)
		}
	}
}

func (c *checker) branch(b *parse.BranchNode, dot, inside bool) {
	c.pipe(b.Pipe, dot)
	c.list(b.List, inside)
	c.list(b.ElseList, dot)
}

func (c *checker) pipe(p *parse.PipeNode, dot bool) {
	if p == nil {
		return
	}
	for _, command := range p.Cmds {
		for i, arg := range command.Args {
			switch arg := arg.(type) {
			case *parse.PipeNode:
				c.pipe(arg, dot)
			case *parse.FieldNode:
				if dot {
					c.path(arg.Ident, command.Args[:i], command.Args[i+1:])
				}
			case *parse.VariableNode:
				if arg.Ident[0] == "$" && len(arg.Ident) > 1 {
					c.path(arg.Ident[1:], command.Args[:i], command.Args[i+1:])
				}
			}
		}
	}
}

// path checks .A.B. before and behind are the other arguments of its command.
func (c *checker) path(path []string, before, behind []parse.Node) {
	dataType := reflect.TypeFor[*data]()
	if _, ok := dataType.MethodByName(path[0]); ok {
		return
	}

	field, ok := dataType.Elem().FieldByName(path[0])
	if !ok || !field.IsExported() {
		c.errorf("unknown field .%s; want one of %s", path[0], strings.Join(known(), ", "))
		return
	}

	indexed := len(before) == 1 && before[0].String() == "index" && len(behind) > 0
	switch {
	case path[0] == "Match" && indexed:
		if n, ok := behind[0].(*parse.NumberNode); ok && n.IsInt && (n.Int64 < 0 || n.Int64 > int64(c.rule.groups())) {
			c.errorf("no regular expression has a group %d", n.Int64)
		}
	case path[0] == "Group" && indexed:
		if s, ok := behind[0].(*parse.StringNode); ok {
			c.group(s.Text)
		}
	case path[0] == "Group" && len(path) > 1:
		c.group(path[1])
	case path[0] == "Var" && len(path) > 1:
		if !slices.ContainsFunc(c.rule.vars, func(v variable) bool { return v.name == path[1] }) {
			c.errorf("unknown var %s", path[1])
		}
	case field.Type.Kind() == reflect.Pointer && len(path) > 1:
		if _, ok := field.Type.Elem().FieldByName(path[1]); !ok {
			c.errorf("unknown field .%s.%s", path[0], path[1])
		}
	}
}

// group checks that a regular expression of the rule has the group.
func (c *checker) group(name string) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= c.rule.groups() {
		return
	}
	for _, regex := range c.rule.regexes {
		if regex.SubexpIndex(name) >= 0 {
			return
		}
	}
	c.errorf("no regular expression has a group %s", name)
}

// groups returns the largest number of groups of the rule's regular
// expressions.
func (r *rule) groups() (most int) {
	for _, regex := range r.regexes {
		most = max(most, regex.NumSubexp())
	}
	return most
}

func (c *checker) errorf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// known returns the names that a template may use.
func known() (names []string) {
	t := reflect.TypeFor[*data]()
	for i := range t.NumMethod() {
		names = append(names, "."+t.Method(i).Name)
	}
	for i := range t.Elem().NumField() {
		if f := t.Elem().Field(i); f.IsExported() {
			names = append(names, "."+f.Name)
		}
	}
	slices.Sort(names)
	return names
}
