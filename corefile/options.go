package corefile

// An Option is a word that may stand in a directive's braces.
type Option struct {
	Name     string
	Min, Max int // how many arguments; Max < 0 is any number
	Set      func(o Directive) error
}
