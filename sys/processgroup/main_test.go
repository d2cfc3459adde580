package processgroup

import (
	"testing"

	"github.com/seamark/seamark/test/orphans"
)

func TestMain(m *testing.M) { orphans.Main(m) }
