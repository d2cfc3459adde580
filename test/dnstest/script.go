package dnstest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
)

// A script is one parsed script file.
type script struct {
	file     string
	comment  string
	only     string // "folder", "live" or ""
	differ   bool   // replies depend on the client's address and are not compared
	coredns  bool   // CoreDNS gives the same answers
	corefile string
	upstream map[string]*upstream // by name, which is "" for the only one
	steps    []*step
	archive  *txtar.Archive
}

// A step changes files and objects and then sends queries.
type step struct {
	apply, delete []byte            // YAML documents
	files         map[string]string // by name
	cases         []*queryCase
	part          string // the name of the part with the queries
}

// readScript parses a file. Errors have its name and a line.
func readScript(file string) (*script, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseScript(file, text)
}

func parseScript(file string, text []byte) (*script, error) {
	s := &script{file: file, archive: txtar.Parse(text), upstream: map[string]*upstream{}}
	s.comment = string(s.archive.Comment)
	line := 1 + strings.Count(s.comment, "\n")
	if err := s.parseComment(); err != nil {
		return nil, err
	}

	for _, part := range s.archive.Files {
		data := string(part.Data)
		if err := s.part(part.Name, data, line+1); err != nil {
			return nil, err
		}
		line += 1 + strings.Count(data, "\n")
	}

	switch {
	case s.corefile == "":
		return nil, fmt.Errorf("%s: no part Corefile", file)
	case len(s.steps) == 0:
		return nil, fmt.Errorf("%s: no queries", file)
	}

	for i, st := range s.steps {
		if st == nil || len(st.cases) == 0 {
			return nil, fmt.Errorf("%s: no queries in step %d", file, i+1)
		}
	}
	return s, nil
}

func (s *script) parseComment() error {
	for i, text := range strings.Split(s.comment, "\n") {
		word, value, ok := strings.Cut(strings.TrimSpace(text), ":") // settings may be indented
		value = strings.TrimSpace(value)
		switch {
		case !ok || strings.ContainsAny(word, " #"):
		case word == "only" && (value == "folder" || value == "live"):
			s.only = value
		case word == "replies" && value == "differ":
			s.differ = true
		case word == "coredns" && value == "same":
			s.coredns = true
		case word == "only":
			return fmt.Errorf("%s:%d: only: want folder or live, got %q", s.file, i+1, value)
		case word == "coredns":
			return fmt.Errorf("%s:%d: coredns: want same, got %q", s.file, i+1, value)
		case word == "replies":
			return fmt.Errorf("%s:%d: replies: want differ, got %q", s.file, i+1, value)
		}
	}
	return nil
}

// part parses one part, whose data starts at the given line.
func (s *script) part(name, data string, line int) error {
	verb, number, _ := strings.Cut(name, " ")
	file := ""
	switch verb {
	case "Corefile":
		s.corefile = data
		return nil
	case "upstream":
		u, err := parseUpstream(data)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", s.file, line-1, err)
		}
		s.upstream[number] = u
		return nil
	case "file":
		file, number, _ = strings.Cut(number, " ")
	}

	n := 1
	if number != "" {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 1 || n > len(s.steps)+1 {
			return fmt.Errorf("%s:%d: part %q: steps are numbered from 1 without gaps", s.file, line-1, name)
		}
	}

	for len(s.steps) < n {
		s.steps = append(s.steps, &step{})
	}

	st := s.steps[n-1]
	switch verb {
	case "cluster.yaml", "apply":
		st.apply = append(slices.Concat(st.apply, []byte("\n---\n")), data...)
	case "delete":
		st.delete = []byte(data)
	case "file":
		if file == "" {
			return fmt.Errorf("%s:%d: want a name after file", s.file, line-1)
		}
		if st.files == nil {
			st.files = map[string]string{}
		}
		st.files[file] = data
	case "queries":
		var err error
		st.part = name
		st.cases, err = parseQueries(s.file, data, line)
		return err
	default:
		return fmt.Errorf("%s:%d: unknown part %q", s.file, line-1, name)
	}

	return nil
}
