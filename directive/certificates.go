package directive

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/watch"
)

// tlsFiles identify the certificates of tls, and of a listener of dnstap.
type tlsFiles struct {
	web.TLS
	keyLog string
}

// certificates has the TLS configuration of files, and reads them again when they have
// changed. It survives reloads.
type certificates struct {
	files  tlsFiles
	config atomic.Pointer[tls.Config]
	log    *slog.Logger
	health *health.Board
	keyLog *os.File // may be nil
	drop   func()   // removes the gauge
	task   *follow.Task
}

// keepCertificates returns the certificates of files.
func keepCertificates(s *config.Start, b *config.Block, files tlsFiles) (*certificates, error) {
	return config.Keep(s, files, func() (*certificates, error) { return newCertificates(files, b) })
}

func newCertificates(files tlsFiles, b *config.Block) (*certificates, error) {
	paths := []string{files.Cert, files.Key}
	if files.CA != "" {
		paths = append(paths, files.CA)
	}

	// The watch begins first, so that it notices a change after load.
	c := &certificates{files: files, log: b.Log, health: b.Health()}
	w := watch.New(paths, watch.Options{Poll: 5 * time.Second, Log: b.Log, NoEvents: b.NoFileEvents})
	if err := c.open(); err != nil {
		w.Close()
		_ = c.keyLog.Close()
		return nil, err
	}

	c.drop = b.Metrics.SharedGauge("seamark_tls_certificate_expiry_seconds",
		"Time at which the certificate in use expires, in seconds since 1970.", math.Min,
		func() float64 { return float64(c.config.Load().Certificates[0].Leaf.NotAfter.Unix()) }, "file", files.Cert)
	c.task = follow.Go(func(ctx context.Context) { c.follow(ctx, w) })
	return c, nil
}

// open opens the key log and loads the files.
func (c *certificates) open() (err error) {
	if c.files.keyLog != "" {
		c.keyLog, err = openKeyLog(c.files.keyLog)
		if err != nil {
			return fmt.Errorf("opening the key log: %w", err)
		}
	}
	return c.load()
}

// openKeyLog opens the key log for appending. A FIFO would block without a reader, and handshakes
// with a slow one.
func openKeyLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.Mode()&fs.ModeNamedPipe != 0 {
		_ = file.Close()
		return nil, cmp.Or(err, fmt.Errorf("open %s: a FIFO", path))
	}
	return file, nil
}

// Stop ends the watch.
func (c *certificates) Stop() {
	c.task.Stop()
	c.health.Forget(c)
	c.drop()
	_ = c.keyLog.Close()
}

func (c *certificates) follow(ctx context.Context, w *watch.Watcher) {
	defer w.Close()
	for w.Wait(ctx) {
		before := c.config.Load()
		switch err := c.load(); {
		case err != nil:
			c.log.Error("tls: Rejected new certificate files, keeping the old ones",
				"file", c.files.Cert, "error", err)
			c.health.Set(c, "files", health.Condition{
				Severity: health.Warning, Object: c.files.Cert,
				Text: fmt.Sprintf("the new certificate %s is rejected, and the old one serves: %v", c.files.Cert, err),
				Next: "correct the files; they are read again when they change",
			})
			continue
		case !c.config.Load().Certificates[0].Leaf.Equal(before.Certificates[0].Leaf):
			c.log.Info("tls: Loaded a new certificate", "file", c.files.Cert)
		}
		c.health.Clear(c, "files")
	}
}

func (c *certificates) load() error {
	config, err := c.files.Load()
	if err != nil {
		return err
	}
	if c.keyLog != nil {
		config.KeyLogWriter = c.keyLog
	}
	c.config.Store(config)
	return nil
}
