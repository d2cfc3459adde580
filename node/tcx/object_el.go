//go:build linux && (386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64)

package tcx

import _ "embed"

//go:embed object/capture_el.o
var object string
