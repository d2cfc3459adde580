// Package expression compiles and evaluates the expressions of the view and
// template directives: conditions and values over one query, in the language of
// github.com/expr-lang/expr with CoreDNS's functions. It reads no Corefile and
// knows no handler; what metadata knows is given to it.
package expression

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/seamark/seamark/dns"
)

// Metadata reads what is known of a query under a key; "" if nothing is.
type Metadata func(q *dns.Query, key string) string

// An Expression is compiled and may be evaluated by several goroutines.
type Expression struct {
	text    string
	program *vm.Program
	idle    sync.Pool // of *machine
}

// Condition compiles an expression that is true or false. What it is otherwise
// is an error, and so are unknown names, wrong types, regular expressions that
// are none and constant prefixes that are none.
func Condition(text string, metadata Metadata) (*Expression, error) {
	return compile(text, metadata, expr.AsBool())
}

// Value compiles an expression of any type.
func Value(text string, metadata Metadata) (*Expression, error) {
	return compile(text, metadata, expr.AsAny())
}

// limit is how long an expression may be, in bytes. The compiler goes as deep as
// its parentheses do, and a stack that is full ends the process.
const limit = 64 << 10

func compile(text string, metadata Metadata, result expr.Option) (*Expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("want an expression, got nothing")
	}
	if len(text) > limit {
		return nil, fmt.Errorf("want an expression of at most %d bytes, got %d", limit, len(text))
	}
	var constants prefixes
	program, err := expr.Compile(text, expr.Env(&environment{}), result, expr.Patch(&constants),
		expr.Function("incidr", within, new(func(string, string) bool)))
	if err == nil {
		err = constants.err
	}
	if err != nil {
		return nil, explain(err, text)
	}
	e := &Expression{text: text, program: program}
	e.idle.New = func() any { return newMachine(metadata) }
	return e, nil
}

// explain says an error of the compiler in one line.
func explain(err error, text string) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return fmt.Errorf("%s, in %s", strings.Replace(err.Error(), "expected bool, but got", "want true or false, got", 1), text)
	}
	message := strings.TrimSpace(strings.ReplaceAll(at.Message, "\n", " "))
	if message == "invalid char escape" {
		message += " (write a backslash twice, or the string between backquotes)"
	}
	return fmt.Errorf("%s, at character %d of %s", message, at.Column+1, text)
}

// prefixes looks at the constant prefixes of incidr.
type prefixes struct{ err error }

// Visit is called for each node of an expression.
func (p *prefixes) Visit(node *ast.Node) {
	call, ok := (*node).(*ast.CallNode)
	if !ok || len(call.Arguments) != 2 {
		return
	}
	callee, named := call.Callee.(*ast.IdentifierNode)
	constant, known := call.Arguments[1].(*ast.StringNode)
	if !named || callee.Value != "incidr" || !known {
		return
	}
	if _, err := parsePrefix(constant.Value); err != nil && p.err == nil {
		p.err = &file.Error{Location: constant.Location(), Column: constant.Location().From, Message: err.Error()}
	}
}

// String is the expression as it was written.
func (e *Expression) String() string { return e.text }

// True says whether a condition holds for q's question as it is now. One that
// cannot be evaluated does not, and err says why.
func (e *Expression) True(q *dns.Query) (bool, error) {
	v, err := e.Value(q)
	holds, _ := v.(bool)
	return holds, err
}

// Value evaluates the expression.
func (e *Expression) Value(q *dns.Query) (any, error) {
	m := e.idle.Get().(*machine)
	v, err := m.run(e.program, q)
	e.idle.Put(m)
	if err != nil {
		return nil, explain(err, e.text)
	}
	return v, nil
}
