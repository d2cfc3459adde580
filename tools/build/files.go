package build

import (
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A File is a file of an image, an archive or a package.
type File struct {
	Path       string // with slashes, without one at its start
	Data       []byte
	Executable bool
	Capability []byte // value of the extended attribute security.capability; nil for none
}

// Mode returns the permissions of f: only the owner may write.
func (f File) Mode() os.FileMode {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// Server builds the server for p and returns its binary, and the two documents that are
// distributed with it: the notices of its modules and their list.
func (r Release) Server(p v1.Platform) (server, notices, modules File, err error) {
	server = File{Path: "seamark", Executable: true}
	if server.Data, err = r.binary(p); err != nil {
		return
	}
	notices.Path, modules.Path = "NOTICES", "seamark.spdx.json"
	if notices.Data, err = r.notices(server.Data); err != nil {
		return
	}
	modules.Data, err = r.spdx(server.Data)
	return
}
