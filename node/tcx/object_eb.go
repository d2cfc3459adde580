//go:build linux && (mips || mips64 || ppc64 || s390x)

package tcx

import _ "embed"

//go:embed object/capture_eb.o
var object string
