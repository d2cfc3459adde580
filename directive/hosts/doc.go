// Package hosts answers from lines in the form of /etc/hosts: the directive
// hosts. They stand in the Corefile, in a file, in the files of a directory or
// in a ConfigMap. parse.go reads them, index.go keeps what they say, table.go
// follows their changes, networks.go knows the machine's networks, hosts.go answers,
// setup.go reads the directive.
//
// Package builtin lists its Setup. It opens no socket; a ConfigMap is package
// cluster's.
package hosts
