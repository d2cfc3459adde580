// Package hosts implements the hosts directive: answers from lines in the format
// of /etc/hosts, in the Corefile, in files and directories, and in ConfigMaps.
//
// Handler (hosts.go) answers queries from an index (index.go): sorted names with
// their addresses, and sorted addresses with their names. It is immutable. A table
// (table.go) owns the current index. It reads its sources, the files (files.go) and
// the ConfigMaps (configmap.go), parses their lines, and builds
// (build.go) and publishes a new index whenever one of them has changed. Setup
// (setup.go) reads the directive. networks.go has the machine's networks, for the
// option localise.
package hosts
