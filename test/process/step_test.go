//go:build unix

package process

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// step runs one line of a part steps.
func (s *script) step(text string, line int) {
	if text == "" || strings.HasPrefix(text, "#") {
		return
	}
	verb, rest, _ := strings.Cut(s.expand(text), " ")
	var err error
	switch verb {
	case "?":
		s.mark = len(s.process.output())
		err = s.query(rest)
	case "?*":
		s.mark = len(s.process.output())
		err = s.await(func() error { return s.query(rest) })
	case "?&":
		s.background(rest)
	case "join":
		err = s.join()
	case ">":
		err = s.await(func() error { return found(s.process.output()[s.mark:], rest) })
	case "received":
		err = s.await(func() error { return found(s.received.String(), rest) })
	case "!received":
		if found(s.received.String(), rest) == nil {
			err = fmt.Errorf("a sink has received %q", rest)
		}
	case "!>":
		if found(s.process.output()[s.mark:], rest) == nil {
			err = fmt.Errorf("output matches %q", rest)
		}
	case "GET":
		err = s.await(func() error { return s.get(rest) })
	case "exists":
		name, pattern, _ := strings.Cut(rest, " ")
		err = s.await(func() error {
			data, err := os.ReadFile(filepath.Join(s.dir, name))
			if err != nil {
				return err
			}
			return found(string(data), pattern)
		})
	case "stream":
		err = s.stream(rest)
	case "axfr":
		err = s.transfer(rest)
	case "update":
		err = s.update(rest)
	case "partial":
		err = s.partial(rest)
	case "signal":
		s.mark = len(s.process.output())
		s.process.signal(map[string]syscall.Signal{"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "HUP": syscall.SIGHUP}[rest])
	case "ends":
		err = s.await(func() error {
			select {
			case <-s.process.ended:
				return nil
			default:
				return fmt.Errorf("the process runs")
			}
		})
	default:
		err = fmt.Errorf("unknown step %q", verb)
	}
	if err != nil {
		s.t.Errorf("%s:%d: %s\n%v", s.file, line, text, err)
	}
}

// background sends a query, and compares the reply while the next steps run.
func (s *script) background(text string) {
	result := make(chan error, 1)
	s.sent = append(s.sent, result)
	go func() {
		ask, want, _ := strings.Cut(text, " => ")
		q, err := s.question(ask)
		if err != nil {
			result <- err
			return
		}
		q.within = limit // once: a second query would be another one
		reply, err := q.exchange()
		if err == nil {
			err = compare(reply, want)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", text, err)
		}
		result <- err
	}()
}

// join waits for the replies to the queries in the background.
func (s *script) join() error {
	var errs []error
	for _, result := range s.sent {
		errs = append(errs, <-result)
	}
	s.sent = nil
	return errors.Join(errs...)
}

// await repeats f until it has no error or the limit is over.
func (s *script) await(f func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(poll) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func found(text, pattern string) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err == nil && !re.MatchString(text) {
		err = fmt.Errorf("no match of %q in:\n%s", pattern, text)
	}
	return err
}

// query sends a query and compares the reply: "example.org A +tcp => NOERROR aa", with words that the
// reply in dig's format must contain. It is repeated while there is no reply.
func (s *script) query(text string) error {
	ask, want, _ := strings.Cut(text, " => ")
	q, err := s.question(ask)
	if err != nil {
		return err
	}

	if want == "silence" {
		q.within = 150 * time.Millisecond
		if r, err := q.exchange(); err == nil {
			return fmt.Errorf("got a reply, want none\n%s", r)
		}
		return nil
	}
	return s.ask(q, want)
}

// ask sends a query until there is a reply, and compares that.
func (s *script) ask(q *question, want string) error {
	var reply *dns.Msg
	err := s.await(func() (err error) {
		reply, err = q.exchange()
		return err
	})
	if err != nil {
		return err
	}
	if want, unsigned := strings.CutSuffix(want, " unsigned"); unsigned {
		if reply.IsTsig() != nil {
			return fmt.Errorf("the reply is signed, want none\n%s", reply)
		}
		return compare(reply, want)
	}
	if q.secret != nil && reply.IsTsig() == nil {
		return fmt.Errorf("the reply is not signed\n%s", reply)
	}
	return compare(reply, want)
}

// compare reports what a reply lacks: a response code, flags, and after each semicolon a record as dig
// prints it: see hasRecord.
func compare(reply *dns.Msg, want string) error {
	parts := strings.Split(want, "; ")
	header := reply.String()
	header, _, _ = strings.Cut(header, "QUERY:")
	got := []string{dns.RcodeToString[reply.Rcode]}
	_, flags, _ := strings.Cut(header, "flags:")
	got = append(got, strings.Fields(strings.Trim(flags, " ;"))...)
	if reply.IsEdns0() == nil {
		got = append(got, "noopt")
	}
	for _, word := range strings.Fields(parts[0]) {
		word, not := strings.CutPrefix(word, "!")
		isThere := slices.ContainsFunc(strings.Split(word, "|"), func(w string) bool { return slices.Contains(got, w) })
		if isThere == not {
			return fmt.Errorf("got header %v, want %q\n%s", got, word, reply)
		}
	}

	for _, record := range parts[1:] {
		if !hasRecord(reply, record) {
			return fmt.Errorf("no record %q in\n%s", record, reply)
		}
	}
	return nil
}

// hasRecord reports whether a reply has a record, with * for any field. "first " or "last " in front of
// it means that of the answer, and "!" that there is none; "none" means that there are no records at all,
// "nsid DIGITS" the identifier of the server, and "ede CODE" an extended error without a text.
func hasRecord(reply *dns.Msg, record string) bool {
	records := slices.DeleteFunc(slices.Concat(reply.Answer, reply.Ns, reply.Extra), func(rr dns.RR) bool {
		return rr.Header().Rrtype == dns.TypeOPT
	})
	if record == "none" {
		return len(records) == 0
	}
	if id, ok := strings.CutPrefix(record, "nsid "); ok {
		return id == nsid(reply) || id == "*" && nsid(reply) != ""
	}
	if code, ok := strings.CutPrefix(record, "ede "); ok {
		return code == extendedError(reply)
	}

	record, isFirst := strings.CutPrefix(record, "first ")
	record, isLast := strings.CutPrefix(record, "last ")
	record, not := strings.CutPrefix(record, "!")
	if n := len(reply.Answer); isFirst {
		records = reply.Answer[:min(1, n)]
	} else if isLast {
		records = reply.Answer[max(0, n-1):]
	}

	fields := strings.Fields(record)
	return not != slices.ContainsFunc(records, func(rr dns.RR) bool {
		have := strings.Fields(rr.String())
		return slices.EqualFunc(have, fields, func(h, f string) bool { return f == "*" || h == f })
	})
}

// get requests a page: "http://127.0.0.1:80/health => 200 OK", with an expression that the text must
// match, or must not behind a !.
func (s *script) get(text string) error {
	url, want, _ := strings.Cut(text, " => ")
	status, pattern, _ := strings.Cut(want, " ")
	code, body, err := page(url)
	if err != nil {
		if code == 0 && status == "closed" {
			return nil
		}
		return err
	}

	switch pattern, not := strings.CutPrefix(pattern, "!"); {
	case strconv.Itoa(code) != status:
		return fmt.Errorf("got status %d\n%s", code, body)
	case not && found(string(body), pattern) == nil:
		return fmt.Errorf("the page matches %q", pattern)
	case not:
		return nil
	default:
		return found(string(body), pattern)
	}
}

// page returns the status and the text of a page, with the labels of series in the order of their names. The status
// is 0 if there is no reply.
func page(url string) (status int, body []byte, err error) {
	client := &http.Client{Timeout: attempt, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	r, err := client.Get(url)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, sortLabels(body), err
}

// nsid returns the identifier of the server in a reply, in hexadecimal digits.
func nsid(reply *dns.Msg) string {
	if opt := reply.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if id, ok := o.(*dns.EDNS0_NSID); ok {
				return id.Nsid
			}
		}
	}
	return ""
}

// extendedError returns the extended error of a reply: its code, and its text.
func extendedError(reply *dns.Msg) string {
	if opt := reply.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return strings.TrimSpace(fmt.Sprint(e.InfoCode, " ", e.ExtraText))
			}
		}
	}
	return ""
}

// series matches a line of a page of metrics that has labels.
var series = regexp.MustCompile(`(?m)^(\w+)\{(.*)"\} `)

// sortLabels sorts the labels of the series of a page, whose order has no meaning.
func sortLabels(page []byte) []byte {
	return series.ReplaceAllFunc(page, func(line []byte) []byte {
		m := series.FindSubmatch(line)
		labels := strings.Split(string(m[2]), `",`)
		slices.Sort(labels)
		return fmt.Appendf(nil, `%s{%s"} `, m[1], strings.Join(labels, `",`))
	})
}
