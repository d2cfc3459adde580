package watch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxKey is the size of the largest file with a key, a certificate or a token.
const maxKey = 16 << 20

// ReadKey returns the content of a file with a key, certificates or a token, as ReadBytes does. Its
// errors contain the path.
func ReadKey(path string) ([]byte, error) {
	text, err := ReadBytes(path, maxKey)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return text, nil
}

// KeyPair is tls.LoadX509KeyPair for regular files: it never blocks on a FIFO.
func KeyPair(certificate, key string) (pair tls.Certificate, err error) {
	cert, err := ReadKey(certificate)
	if err != nil {
		return pair, err
	}
	private, err := ReadKey(key)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, private)
}

// Exposed returns an error if all users of the machine can read a file, which has a key or a
// token. Volumes of a pod, whose files the kubelet links to ..data, have no other users.
func Exposed(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o004 == 0 || !info.Mode().IsRegular() {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(path), "..data")); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s: all users can read it (mode %04o): use chmod o-r", path, info.Mode().Perm())
}
