package directive_test

import (
	"os"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/directive"
)

// The tests plan Corefiles with the directives of builtin, which imports package directive.
func TestMain(m *testing.M) {
	directive.SetDirectives(builtin.Directives())
	os.Exit(m.Run())
}
