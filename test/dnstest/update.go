package dnstest

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/tools/txtar"
)

// settle is how long learn waits for the server to process a change. There is no
// condition to wait for, except the replies.
const settle = time.Second

// learn sets a step's expectations to the first server's replies.
func (r *runner) learn(st *step) {
	time.Sleep(settle)
	for _, q := range st.cases {
		v := r.variants[0]
		if q.only == "tcp" {
			v = r.variants[1]
		}
		reply, err := ask(v.at, v.proto, q.packet, patience)
		if err != nil {
			r.t.Fatalf("%s: %v", q.at, err)
		}
		if reply == nil {
			q.want = expectation{silence: true}
			continue
		}
		m := new(dns.Msg)
		if err := m.Unpack(reply); err != nil {
			r.t.Fatalf("%s: %v", q.at, err)
		}
		if q.check(reply, v.proto) != "" {
			q.want = q.print(reply, m)
		}
	}
}

// rewrite writes the script's expectations into its file. It writes * for serial
// numbers, which depend on the objects.
func (s *script) rewrite() error {
	for i, part := range s.archive.Files {
		for _, st := range s.steps {
			if st.part != part.Name {
				continue
			}
			lines := strings.Split(strings.TrimSuffix(string(part.Data), "\n"), "\n")
			for _, q := range slices.Backward(st.cases) {
				want := strings.Split(strings.TrimSuffix(q.want.String(), "\n"), "\n")
				for j, line := range want {
					if f := strings.Fields(line); len(f) == 11 && f[3] == "SOA" {
						f[6] = "*"
						want[j] = strings.Join(f, " ")
					}
				}
				lines = slices.Replace(lines, q.first, q.last, want...)
			}
			s.archive.Files[i].Data = []byte(strings.Join(lines, "\n") + "\n")
		}
	}
	return os.WriteFile(s.file, txtar.Format(s.archive), 0o644)
}
