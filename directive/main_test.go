package directive_test

import (
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/directive"

	"github.com/seamark/seamark/test/orphans"
)

// The tests plan Corefiles with the directives of builtin, which imports package directive.
func TestMain(m *testing.M) {
	directive.SetDirectives(builtin.Directives())
	orphans.Main(m)
}
