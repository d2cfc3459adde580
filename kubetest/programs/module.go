package programs

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
)

// OpenModule opens a module's archive in the module cache, which has it even if the module needs a later
// Go. The first call needs Go's module proxy.
func OpenModule(module, version string) (*zip.ReadCloser, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module+"@v"+version)
	cmd.Dir = os.TempDir() // outside of a module
	out, runErr := cmd.Output()
	var info struct{ Zip, Error string }
	if err := json.Unmarshal(out, &info); err != nil || info.Zip == "" {
		return nil, fmt.Errorf("downloading %s: %v %s", module, runErr, info.Error)
	}
	return zip.OpenReader(info.Zip)
}

// ReadModule returns a file of a module from the archive that OpenModule opens.
func ReadModule(module, version, file string) ([]byte, error) {
	archive, err := OpenModule(module, version)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return fs.ReadFile(archive, module+"@v"+version+"/"+file)
}
