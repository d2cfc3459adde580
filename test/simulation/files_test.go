package simulation

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	hostsZone = "hosts.example."
	fileZone  = "file.example."

	fileNames   = 4
	followedTTL = 30

	// followed is how long the server may take to notice a change of a file, with the
	// longest interval of settings.reload, and to wait until the file is complete.
	followed = 3 * time.Second
)

// A period is some time. Its end is zero if it has not ended.
type period struct{ begin, end time.Time }

// overlaps reports whether p and the time from begin to end have an instant in common.
func (p period) overlaps(begin, end time.Time) bool {
	return !p.begin.After(end) && (p.end.IsZero() || !p.end.Before(begin))
}

// A followedFile is a hosts file or a zone file that changes. It serves a zone of its own.
type followedFile struct {
	world *world
	zone  string
	path  string

	writing chan struct{} // held by the writer: a mutex would stop the virtual clock

	mu       sync.Mutex
	versions []fileVersion
}

// A fileVersion is the content of a file since a time.
type fileVersion struct {
	since  time.Time
	number int
	valid  bool // otherwise the file is missing, empty or has no valid line
	lines  int  // valid ones for names: all names, or those that have been written
}

func newFollowedFile(w *world, zone string) *followedFile {
	f := &followedFile{world: w, zone: zone, path: filepath.Join(w.dir, zone+"txt"), writing: make(chan struct{}, 1)}
	f.write(fileVersion{number: 1, valid: true, lines: fileNames}, true)
	return f
}

func (f *followedFile) corefile(reload int) string {
	text, after := "file "+f.path+" {\n", f.world.secondary.transferTo()
	if f.zone == hostsZone {
		after = ""
	}
	after += f.world.pages.corefile(false)
	if f.zone == hostsZone {
		text = "hosts " + f.path + fmt.Sprintf(" {\n  ttl %d\n", followedTTL)
	}
	return fmt.Sprintf("%s {\n%s %s  reload %ds\n }\n%s}\n", f.world.keys(f.zone), f.world.tlsDirective(), text, reload, after)
}

func (f *followedFile) name(i int) string { return fmt.Sprintf("h%d.%s", i, f.zone) }

// alias is a CNAME of the first name in the zone file, and a second name in the hosts file.
func (f *followedFile) alias() string { return "alias." + f.zone }

func (f *followedFile) randomQuestion(r *rand.Rand) (name string, qtype uint16) {
	if qtype = []uint16{dns.TypeA, dns.TypeA, dns.TypeAAAA}[r.IntN(3)]; r.IntN(4) == 0 {
		return f.alias(), dns.TypeA
	}
	return f.name(r.IntN(fileNames)), qtype
}

// addresses returns the addresses of a name: two, so that an answer from two versions shows.
func (v fileVersion) addresses(i int) []string {
	return []string{fmt.Sprintf("198.51.%d.%d", v.number%256, i), fmt.Sprintf("203.0.%d.%d", v.number%256, i)}
}

// has reports whether the version has records of a name. Each version lacks one of the later
// names.
func (v fileVersion) has(i int) bool {
	return v.valid && i < v.lines && (i == 0 || i != 1+v.number%(fileNames-1))
}

// text returns the content of the file.
func (f *followedFile) text(v fileVersion) string {
	var text strings.Builder
	if f.zone == fileZone {
		fmt.Fprintf(&text, "$TTL %d\n@ SOA ns admin %d 60 60 600 60\n@ NS ns.example.\n", followedTTL, v.number)
	}
	for i := range v.lines {
		for n, a := range v.addresses(i) {
			switch {
			case !v.has(i):
			case f.zone == fileZone:
				fmt.Fprintf(&text, "h%d A %s\n", i, a)
			default:
				fmt.Fprintf(&text, "%s h%d.%s\n", a, i, f.zone)
			}
			if i == 0 && f.zone == fileZone && n == 0 {
				fmt.Fprintf(&text, "alias CNAME h0\n")
			} else if i == 0 && f.zone == hostsZone {
				fmt.Fprintf(&text, "%s alias.%s\n", a, f.zone)
			}
		}
	}
	return text.String()
}

// write makes v the content of the file, by another file that replaces it or in the old one.
// The times of files follow the virtual clock.
func (f *followedFile) write(v fileVersion, replace bool) {
	text := ""
	switch {
	case v.valid:
		text = f.text(v)
	case replace:
		text = "nonsense $\n"
	}
	path := f.path
	if replace {
		path += ".new"
	}
	v.since = time.Now()
	f.mu.Lock()
	f.versions = append(f.versions, v)
	f.mu.Unlock()
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil {
		at := v.since.Add(time.Duration(v.number)) // no two versions of a system's clock have one time
		err = os.Chtimes(path, at, at)
	}
	if err == nil && replace {
		err = os.Rename(path, f.path)
	}
	if err != nil {
		f.world.fail("%s: %v", f.path, err)
	}
}

func (f *followedFile) last() fileVersion {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.versions[len(f.versions)-1]
}

// change changes the file in one of the ways in which files change.
func (f *followedFile) change(r *rand.Rand) {
	f.writing <- struct{}{}
	defer func() { <-f.writing }()
	w, number := f.world, f.last().number+1
	switch kind := r.IntN(6); kind {
	case 0:
		w.cause("%s is removed", f.zone)
		f.mu.Lock()
		f.versions = append(f.versions, fileVersion{since: time.Now(), number: number})
		f.mu.Unlock()
		_ = os.Remove(f.path)
	case 1:
		w.cause("%s has no valid line", f.zone)
		f.write(fileVersion{number: number}, true)
	case 2, 3:
		w.cause("%s is written step by step, version %d", f.zone, number)
		f.write(fileVersion{number: number}, false)
		for _, lines := range []int{1, 3, fileNames} {
			time.Sleep(time.Duration(1+r.IntN(30)) * time.Millisecond)
			f.write(fileVersion{number: number, valid: true, lines: lines}, false)
		}
	default:
		w.cause("%s is replaced by version %d", f.zone, number)
		f.write(fileVersion{number: number, valid: true, lines: fileNames}, true)
	}
}

// repair makes the file valid.
func (f *followedFile) repair() {
	f.writing <- struct{}{}
	defer func() { <-f.writing }()
	if v := f.last(); !v.valid {
		f.write(fileVersion{number: v.number + 1, valid: true, lines: fileNames}, true)
	}
}

// served returns the versions that the server may serve at a time between two others. It may
// have read an incomplete one only while it loaded a Corefile. The zero version has no names:
// that of a hosts file that was not valid while a Corefile was loaded.
func (f *followedFile) served(from, to time.Time) (possible []fileVersion) {
	f.world.mu.Lock()
	loads := slices.Clone(f.world.loads)
	f.world.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, v := range f.versions {
		if v.since.After(to) {
			break
		}
		end := to
		if i+1 < len(f.versions) && f.versions[i+1].since.Before(to) {
			end = f.versions[i+1].since
		}
		loaded := slices.ContainsFunc(loads, func(p period) bool { return p.overlaps(v.since, end) })
		switch {
		case !v.valid && f.zone == hostsZone && loaded:
			possible = append(possible, fileVersion{})
			continue
		case !v.valid, v.lines < fileNames && !loaded:
			continue
		// The server has certainly read it before the next version, or before from.
		case end.Sub(v.since) >= followed && from.Sub(v.since) >= followed:
			possible = nil
		}
		possible = append(possible, v)
	}
	return possible
}

// permitted reports whether an answer is permitted, and returns the permitted answers.
func (f *followedFile) permitted(q *query, got answer) (permitted []string, ok bool) {
	name := strings.ToLower(q.name)
	for _, v := range f.served(q.sent, time.Now()) {
		text := f.answer(v, name, q.qtype).String()
		if text == got.String() {
			return nil, true
		}
		permitted = append(permitted, text)
	}
	return permitted, false
}

// answer returns the answer of a version.
func (f *followedFile) answer(v fileVersion, name string, qtype uint16) answer {
	var records []string
	i := 0
	switch {
	case name != f.alias():
		_, _ = fmt.Sscanf(name, "h%d.", &i)
	case f.zone == fileZone && v.has(0):
		records, name = append(records, record(name, followedTTL, "CNAME", f.name(0))), f.name(0)
	}
	if !v.has(i) {
		return newAnswer(dns.RcodeNameError)
	}
	for _, a := range v.addresses(i) {
		if qtype == dns.TypeA {
			records = append(records, record(name, followedTTL, "A", a))
		}
	}
	return newAnswer(dns.RcodeSuccess, records...)
}

// followed returns the file that has a name, or nil.
func (w *world) followed(name string) *followedFile {
	for _, f := range w.files {
		if strings.HasSuffix(name, "."+f.zone) {
			return f
		}
	}
	return nil
}
