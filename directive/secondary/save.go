package secondary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// The file of a zone: the line fileHead, the zone's name and the Unix time at which a
// primary last confirmed the zone; each record, preceded by its length in three bytes; a
// length of zero; and the CRC-32 of everything before.
const fileHead = "seamark secondary zone, version 1\n"

// save writes the zone to its file, if there is one and the zone has changed.
func (s *schedule) save() {
	c := s.copy
	if c.file == "" || s.zone == nil || !s.unsaved {
		return
	}
	s.saved, s.unsaved = time.Now(), false
	if err := c.writeFile(s.zone, s.checked); err != nil {
		s.unsaved = true
		c.log.Warn("secondary: Failed to write zone", "zone", c.origin, "file", c.file, "error", err)
	}
}

func (c *zoneCopy) writeFile(z *zone.Zone, checked time.Time) error {
	return watch.Replace(c.file, 0o600, func(f *os.File) error {
		sum := crc32.NewIEEE()
		w := bufio.NewWriter(io.MultiWriter(f, sum))
		_, _ = w.WriteString(fileHead)
		_, _ = w.Write(binary.BigEndian.AppendUint64([]byte(c.origin), uint64(checked.Unix())))

		for r := range z.Records {
			_, _ = w.Write([]byte{byte(len(r) >> 16), byte(len(r) >> 8), byte(len(r))})
			_, _ = w.Write(r)
		}
		_, _ = w.Write([]byte{0, 0, 0})

		if err := w.Flush(); err != nil {
			return err
		}
		_, err := f.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
		return err
	})
}

// load serves the zone in the file, unless it has expired.
func (s *schedule) load() {
	c := s.copy
	if c.file == "" {
		return
	}
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}

	var z *zone.Zone
	var checked time.Time
	if err == nil {
		z, checked, err = parseFile(c.origin, data)
	}
	if err != nil {
		c.log.Warn("secondary: Ignored file", "zone", c.origin, "file", c.file, "error", err)
		return
	}

	if age := time.Since(checked); age > timer(z, soaExpire) || age < -time.Hour {
		c.log.Warn("secondary: Ignored file: the zone has expired",
			"zone", c.origin, "file", c.file, "data_age", age.Round(time.Second))
		return
	}

	if c.accept != nil {
		if err := c.accept(z); err != nil {
			c.log.Warn("secondary: Ignored file", "zone", c.origin, "file", c.file, "error", err)
			return
		}
	}

	s.checked, s.saved = checked, time.Now()
	s.install(z)
	serial, _ := z.Serial()
	c.log.Info("secondary: Loaded zone",
		"zone", c.origin, "file", c.file, "serial", serial, "data_age", time.Since(checked).Round(time.Second))
}

// parseFile returns the zone in a file.
func parseFile(origin wire.Name, data []byte) (*zone.Zone, time.Time, error) {
	head := fileHead + string(origin)
	if len(data) < len(head)+8+4 || !bytes.HasPrefix(data, []byte(head)) {
		return nil, time.Time{}, fmt.Errorf("not a file of zone %s", origin)
	}
	end := len(data) - 4
	if crc32.ChecksumIEEE(data[:end]) != binary.BigEndian.Uint32(data[end:]) {
		return nil, time.Time{}, errors.New("wrong checksum")
	}

	checked := time.Unix(int64(binary.BigEndian.Uint64(data[len(head):])), 0)

	in := newIncoming(origin, nil, false)
	var soa []byte
	for rest := data[len(head)+8 : end]; len(rest) >= 3; {
		n := int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
		if n == 0 {
			break
		}
		if rest = rest[3:]; n > len(rest) {
			return nil, checked, errors.New("malformed file")
		}
		if soa == nil {
			soa = rest[:n]
		}
		if err := in.record(rest[:n]); err != nil {
			return nil, checked, err
		}
		rest = rest[n:]
	}
	if soa == nil {
		return nil, checked, errors.New("no records")
	}

	// A transfer ends with the SOA record, too.
	if err := in.record(soa); err != nil {
		return nil, checked, err
	}
	z, err := in.zone()
	return z, checked, err
}
