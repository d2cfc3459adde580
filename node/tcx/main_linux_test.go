package tcx

import (
	"testing"

	"github.com/seamark/seamark/test/orphans"
)

func TestMain(m *testing.M) {
	becomeKernel()
	orphans.Main(m)
}
