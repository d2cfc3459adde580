// Package expression compiles and evaluates the expressions of the view and
// template directives: conditions and values of one query, in the language of
// github.com/expr-lang/expr with CoreDNS's functions. It does not read
// Corefiles and depends on no handler; callers pass the function that returns
// metadata.
package expression

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"github.com/seamark/seamark/dns"
)

// Metadata returns the metadata value of a query for a key, or "".
type Metadata func(q *dns.Query, key string) string

// An Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	text    string
	program *vm.Program
	scoped  bool
	warning error
	idle    sync.Pool // of *machine
}

// Names are the names that the expressions of a caller may use besides the functions of
// every expression.
type Names struct {
	Metadata Metadata
	Groups   bool     // the function group
	Vars     []string // variables, with names that are not reserved
}

// Reserved reports whether name is a function, a keyword or a literal of the language, which a variable
// cannot hide.
func Reserved(name string) bool {
	if _, ok := builtin.Index[name]; ok || isFunction(name) {
		return true
	}

	tree, err := parser.Parse(name)
	if err != nil {
		return true
	}
	_, identifier := tree.Node.(*ast.IdentifierNode)
	return !identifier
}

// A Scope has the values of Names for one query.
type Scope struct {
	Groups map[string]string // by name, and by number
	Vars   map[string]any
}

// Condition compiles an expression that is true or false. It returns an error
// for any other type, and for unknown names, wrong argument types, and invalid
// constant regular expressions, addresses and prefixes.
func Condition(text string, n Names) (*Expression, error) {
	return compile(text, n, expr.AsBool())
}

// Value compiles an expression of any type.
func Value(text string, n Names) (*Expression, error) {
	return compile(text, n, expr.AsAny())
}

// maxLength is the largest length of an expression in bytes. The compiler
// recurses for each parenthesis, and a stack overflow would end the process.
const maxLength = 64 << 10

func compile(text string, n Names, result expr.Option) (*Expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("want an expression, got nothing")
	}
	if len(text) > maxLength {
		return nil, fmt.Errorf("want an expression of at most %d bytes, got %d", maxLength, len(text))
	}

	c := checker{names: n, variables: map[string]bool{}}
	program, err := expr.Compile(text, expr.Env(&environment{}), result, expr.Patch(&c),
		expr.Function("incidr", inCIDR, new(func(string, string) bool)))
	if err == nil {
		err = c.result()
	}
	if err != nil {
		return nil, explain(err, text)
	}

	e := &Expression{text: text, program: program, scoped: c.scoped, warning: c.warning}
	e.idle.New = func() any { return newMachine(n.Metadata) }
	return e, nil
}

// explain turns an error of the compiler into one line.
func explain(err error, text string) error {
	at, ok := errors.AsType[*file.Error](err)
	if !ok {
		return fmt.Errorf("%s, in %s",
			strings.Replace(err.Error(), "expected bool, but got", "want true or false, got", 1), text)
	}

	message := strings.TrimSpace(strings.ReplaceAll(at.Message, "\n", " "))
	if message == "invalid char escape" {
		message += " (write a backslash twice, or the string between backquotes)"
	}
	return fmt.Errorf("%s, at character %d of %s", message, at.Column+1, text)
}

// A checker checks properties that the compiler does not check: names of functions inside the
// arguments of incidr, and the constant arguments of incidr. It replaces the
// variables of Names by calls of the function that returns their values.
type checker struct {
	names     Names
	scoped    bool
	variables map[string]bool // declared by let
	calls     []*ast.IdentifierNode
	err       error
	warning   error
}

// Visit is called for each node of an expression.
func (c *checker) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		c.variables[n.Name] = true
		if slices.Contains(c.names.Vars, n.Name) {
			c.fail(n, "already a var: "+n.Name)
		}
	case *ast.IdentifierNode:
		if slices.Contains(c.names.Vars, n.Value) && !isFunction(n.Value) {
			c.scoped = true
			ast.Patch(node, &ast.CallNode{
				Callee:    &ast.IdentifierNode{Value: variableFunction},
				Arguments: []ast.Node{&ast.StringNode{Value: n.Value}},
			})
		}
	case *ast.CallNode:
		callee, ok := n.Callee.(*ast.IdentifierNode)
		if !ok {
			return
		}
		if callee.Value == "group" {
			c.scoped = true
			if !c.names.Groups {
				c.fail(callee, "unknown name group")
			}
		}

		c.calls = append(c.calls, callee)
		if callee.Value == "incidr" && len(n.Arguments) == 2 {
			checkConstant(c, n.Arguments[1], parsePrefix)
			c.checkBrackets(n.Arguments[1])
			checkConstant(c, n.Arguments[0], parseAddr)
		}
	}
}

func checkConstant[T any](c *checker, argument ast.Node, parse func(string) (T, error)) {
	if constant, ok := argument.(*ast.StringNode); ok {
		if _, err := parse(constant.Value); err != nil {
			c.fail(constant, err.Error())
		}
	}
}

// checkBrackets warns of a prefix with brackets, which CoreDNS accepts and never matches.
func (c *checker) checkBrackets(argument ast.Node) {
	constant, ok := argument.(*ast.StringNode)
	if !ok {
		return
	}
	if bare := withoutBrackets(constant.Value); bare != constant.Value {
		c.warning = fmt.Errorf("incidr: '%s' is read as '%s', and matches nothing in CoreDNS: write it without brackets",
			constant.Value, bare)
	}
}

func (c *checker) fail(node ast.Node, message string) {
	if c.err == nil {
		c.err = &file.Error{Location: node.Location(), Column: node.Location().From, Message: message}
	}
}

// result returns the first error. It must be called after every node has been
// visited.
func (c *checker) result() error {
	for _, callee := range c.calls {
		if !c.variables[callee.Value] && !isFunction(callee.Value) {
			c.fail(callee, "unknown name "+callee.Value)
		}
	}
	return c.err
}

// Warning returns what is probably a mistake in the expression, or nil.
func (e *Expression) Warning() error { return e.warning }

// String returns the text that was compiled.
func (e *Expression) String() string { return e.text }

// True reports whether the condition holds for the current question of q. If it
// cannot be evaluated, True returns false and the error.
func (e *Expression) True(q *dns.Query) (bool, error) {
	v, err := e.Value(q)
	holds, _ := v.(bool)
	return holds, err
}

// Scoped reports whether the expression uses groups or variables.
func (e *Expression) Scoped() bool { return e.scoped }

// Value evaluates an expression that is not Scoped.
func (e *Expression) Value(q *dns.Query) (any, error) { return e.ValueIn(q, Scope{}) }

// ValueIn evaluates the expression.
func (e *Expression) ValueIn(q *dns.Query, s Scope) (any, error) {
	m := e.idle.Get().(*machine)
	v, err := m.run(e.program, q, s)
	e.idle.Put(m)
	if err != nil {
		return nil, explain(err, e.text)
	}
	return v, nil
}
