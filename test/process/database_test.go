//go:build unix

package process

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// database writes a database of geoip from the argument of its part, a file and a type, and lines with a
// network and its record in JSON.
func (s *script) database(argument, text string) {
	file, kind, _ := strings.Cut(argument, " ")
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IncludeReservedNetworks: true})
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		network, record, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, to, err := net.ParseCIDR(network)
		var value any
		if err == nil {
			err = json.Unmarshal([]byte(record), &value)
		}
		if err == nil {
			err = tree.Insert(to, databaseValue(value))
		}
		if err != nil {
			s.t.Fatalf("%s: %s: %v", s.file, line, err)
		}
	}

	var data bytes.Buffer
	if _, err = tree.WriteTo(&data); err == nil {
		err = os.WriteFile(filepath.Join(s.dir, file), data.Bytes(), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// databaseValue returns a value of JSON as a database has it: integers are the numbers of ASN databases.
func databaseValue(v any) mmdbtype.DataType {
	switch v := v.(type) {
	case map[string]any:
		m := mmdbtype.Map{}
		for key, value := range v {
			m[mmdbtype.String(key)] = databaseValue(value)
		}
		return m
	case []any:
		list := mmdbtype.Slice{}
		for _, value := range v {
			list = append(list, databaseValue(value))
		}
		return list
	case bool:
		return mmdbtype.Bool(v)
	case float64:
		if v == float64(uint32(v)) {
			return mmdbtype.Uint32(v)
		}
		return mmdbtype.Float64(v)
	}
	return mmdbtype.String(v.(string))
}
