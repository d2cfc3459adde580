package file

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/signing"
	"github.com/seamark/seamark/zone/zonefile"
)

// Times of signatures, as in CoreDNS except minLeft: seven days there.
const (
	day              = 24 * time.Hour
	inceptionBefore  = 3 * time.Hour // for validators whose clock is slow
	inceptionJitter  = 18 * time.Hour
	expirationAfter  = 32 * day
	expirationJitter = 5 * day
	maxAge           = 6 * day  // since the inception
	minLeft          = 14 * day // until the expiration
	signInterval     = 5 * time.Hour
	signRetry        = 5 * time.Minute
)

// A signer keeps one signed zone file up to date. All plans that write the file share it,
// so that it is written by one at a time.
type signer struct {
	path    string // of the signed zone file
	log     *slog.Logger
	failed  *metrics.Counter
	expires atomic.Int64 // when the signatures end, in seconds since 1970
	drop    func()       // removes the gauge
	running *follow.Task

	watch  watch.Options
	random func(time.Duration) time.Duration // returns a duration that is not negative and less

	task atomic.Pointer[signTask] // of the plan that serves
	wake follow.Signal            // task has been set

	mu       sync.Mutex // held while the zone is read and signed
	plan     *config.Start
	next     *signTask // of plan; guarded by mu
	files    []string  // the zone file and the files that it includes; guarded by mu
	lastFail string    // the last error that was logged; guarded by mu
	yielded  bool      // another process, which replaces this one, signs the zone; guarded by mu
}

func newSigner(t *signTask, b *config.Block) *signer {
	s := &signer{
		path: t.signed, log: b.Log, wake: follow.NewSignal(),
		watch: watch.Options{Poll: time.Minute, Log: b.Log}, random: rand.N[time.Duration],
		failed: b.Metrics.Counter("seamark_sign_failed_total", "Counter of zones that could not be signed.",
			"zone", t.origin.String()),
	}
	s.drop = b.Metrics.SharedGauge("seamark_sign_signature_expiry_seconds",
		"Time at which the signatures of a signed zone file end, in seconds since 1970.", math.Min,
		func() float64 { return float64(s.expires.Load()) }, "zone", t.origin.String())
	s.running = follow.Go(s.run)
	return s
}

// Stop stops signing.
func (s *signer) Stop() {
	s.running.Stop()
	s.drop()
}

// Yield implements config.Yielder. It waits until the file is written.
func (s *signer) Yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yielded = true
}

// Resume implements config.Yielder. What was due meanwhile is done, unless the other process has done it.
func (s *signer) Resume() {
	s.mu.Lock()
	s.yielded = false
	s.mu.Unlock()
	if s.task.Load() != nil { // else follow wakes it
		s.wake.Send()
	}
}

// prepare signs a zone for the start of a plan, unless the signed file can be served.
func (s *signer) prepare(plan *config.Start, t *signTask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan == plan {
		if !s.next.equal(t) {
			return fmt.Errorf("zone %s is already signed at %s:%d, with other keys or from another file",
				t.origin, s.next.use.File, s.next.use.Line)
		}
		return nil
	}

	s.plan, s.next = plan, t
	if f, now := readSigned(s.path, t.origin), unixNow(); f.usable(now) {
		s.expires.Store(time.Now().Add(seconds(f.expiration - now)).Unix())
		return nil
	}
	if plan.Observes {
		return fmt.Errorf("zone %s: %s has no valid signatures: the server signs the zone when it starts", t.origin, s.path)
	}
	_, err := s.check(plan.Context, t)
	return err
}

// follow keeps the zone of a plan that has begun to serve signed.
func (s *signer) follow(t *signTask) {
	s.task.Store(t)
	s.wake.Send()
}

// run signs the zone whenever that is due, until ctx ends.
func (s *signer) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.wake:
	}

	w := watch.New([]string{s.path, s.task.Load().path}, s.watch)
	defer w.Close()
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() { w.Run(ctx, changed) })
	defer watching.Wait()

	for {
		wait, files := s.update(ctx)
		w.Follow(append(files, s.path)...)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// update signs the zone if that is due. It returns when that may be due again, and the
// files that the zone is read from.
func (s *signer) update(ctx context.Context) (wait time.Duration, files []string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.task.Load()
	if s.yielded { // until Resume, or for ever
		return signInterval, append([]string{t.path}, s.files...)
	}
	wait, err := s.check(ctx, t)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		s.lastFail = ""
	default:
		wait = signRetry
		s.failed.Add(1)
		if err.Error() != s.lastFail {
			s.lastFail = err.Error()
			s.log.Error("sign: Failed to sign zone", "zone", t.origin, "file", s.path, "error", err)
		}
	}
	return wait, append([]string{t.path}, s.files...)
}

// check signs the zone if that is due. It returns when that may be due again. s.mu must be
// held.
func (s *signer) check(ctx context.Context, t *signTask) (time.Duration, error) {
	l := loader{origin: t.origin, origins: t.origins, sign: true}
	z, files, err := l.load(t.path)
	s.files = s.files[:0]
	for _, f := range files {
		s.files = append(s.files, f.Path)
	}
	if err != nil {
		return 0, err
	}

	digest, old, now := signing.Digest(z, t.keys), readSigned(s.path, t.origin), unixNow()
	why, wait := old.due(digest, now)
	if old.err == nil {
		s.expires.Store(time.Now().Add(seconds(old.expiration - now)).Unix())
	}

	if why == "" {
		return wait, nil
	}
	l.warn(s.log)
	return s.sign(ctx, t, z, &old, digest, why)
}

// sign writes the signed zone file. It returns when that may be due again. old is the state of
// the file before, and why the reason.
func (s *signer) sign(
	ctx context.Context, t *signTask, z *zone.Zone, old *signedFile, digest, why string,
) (time.Duration, error) {
	now := unixNow()
	serial := now
	if old.hasSerial && !zone.SerialLess(old.serial, serial) {
		serial = old.serial + 1
	}

	v := signing.Validity{
		Inception:  now - uint32((inceptionBefore+s.random(inceptionJitter))/time.Second),
		Expiration: now + uint32((expirationAfter+s.random(expirationJitter))/time.Second),
	}

	// The digest is in a comment, so that the next start knows what the file was made from.
	begin := time.Now()
	err := watch.Replace(s.path, 0o644, func(f *os.File) error {
		if _, err := fmt.Fprintf(f, "%s%s\n", digestLine, digest); err != nil {
			return err
		}
		return signing.Write(ctx, f, z, t.keys, v, serial)
	})
	if err != nil {
		return 0, err
	}

	s.expires.Store(time.Now().Add(seconds(v.Expiration - now)).Unix())
	var tags []uint16
	for _, k := range t.keys {
		tags = append(tags, k.Tag)
	}
	s.log.Info("sign: Signed zone", "zone", t.origin, "file", s.path, "reason", why, "serial", serial,
		"keys", tags, "duration", time.Since(begin).Round(time.Millisecond))

	_, wait := (&signedFile{digest: digest, inception: v.Inception, expiration: v.Expiration}).due(digest, now)
	return wait, nil
}

// unixNow returns the present time as in signatures.
func unixNow() uint32 { return uint32(time.Now().Unix()) }

// seconds returns a difference of times in signatures, which are serial numbers (RFC 4034
// §3.1.5).
func seconds(n uint32) time.Duration { return time.Duration(int32(n)) * time.Second }

// A signedFile is the state of a signed zone file.
type signedFile struct {
	err        error  // why the state is not known
	digest     string // of the zone and the keys that it was made from
	hasSerial  bool
	serial     uint32
	inception  uint32 // of the signature of the SOA record
	expiration uint32
}

// digestLine is the start of the first line of a signed file.
const digestLine = "; Made by the directive sign from a zone and keys with the digest "

// readSigned reads the state of a signed zone file.
func readSigned(path string, origin wire.Name) (s signedFile) {
	signed, done := false, errors.New("done")
	_, err := zonefile.Read(path, origin, func(r zonefile.Record) error {
		switch {
		case r.Owner != origin:
		case r.Type == wire.TypeSOA && len(r.RData) >= 20:
			s.serial, s.hasSerial = zone.SOASerial([]byte(r.RData)), true
		case r.Type == wire.TypeRRSIG && len(r.RData) > 18:
			rdata := []byte(r.RData)
			if wire.Type(binary.BigEndian.Uint16(rdata)) == wire.TypeSOA {
				signed = true
				s.expiration, s.inception = binary.BigEndian.Uint32(rdata[8:]), binary.BigEndian.Uint32(rdata[12:])
			}
		}
		if s.hasSerial && signed {
			return done // a zone file of many megabytes need not be read to its end
		}
		return nil
	})

	switch {
	case !errors.Is(err, done) && err != nil:
		s.err = err
	case !signed || !s.hasSerial:
		s.err = errors.New("no signed SOA record")
	default:
		s.digest = readDigest(path)
	}
	return s
}

// readDigest returns the digest in the first line of a signed file, or "".
func readDigest(path string) string {
	f, err := watch.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line := bufio.NewScanner(f)
	line.Scan()
	digest, _ := strings.CutPrefix(line.Text(), digestLine)
	return digest
}

// usable reports whether the file can be served.
func (f *signedFile) usable(now uint32) bool {
	return f.err == nil && seconds(now-f.inception) >= 0 && seconds(f.expiration-now) > 0
}

// due returns why the zone must be signed, or "" and when that will be due.
func (f *signedFile) due(digest string, now uint32) (why string, wait time.Duration) {
	age, left := seconds(now-f.inception), seconds(f.expiration-now)
	switch {
	case errors.Is(f.err, fs.ErrNotExist):
		return "no signed file", 0
	case f.err != nil:
		return f.err.Error(), 0
	case f.digest != digest:
		return "the zone file or a key has changed", 0
	case age < 0:
		return "the signatures begin in the future", 0
	case age >= maxAge:
		return "the signatures are old", 0
	case left <= minLeft:
		return "the signatures end soon", 0
	}
	return "", min(maxAge-age, left-minLeft, signInterval)
}
