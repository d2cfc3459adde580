package shadow

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxPacket bounds the size of a packet in a capture. libpcap's is 256 KB.
const maxPacket = 256 << 10

// maxInterfaces bounds the interfaces of a section of a pcapng file.
const maxInterfaces = 4096

// A packet is one packet of a capture. data is valid until the next one is read.
type packet struct {
	time  time.Time
	link  uint32 // its link type
	data  []byte
	whole bool // the packet was not longer
}

// A captureReader reads the packets of a file in the format pcap or pcapng
// (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
type captureReader struct {
	r     *bufio.Reader
	order binary.ByteOrder
	buf   []byte
	next  func() (packet, error)

	// pcap
	link  uint32
	units int64 // of a second

	// pcapng
	interfaces []captureInterface
}

// A captureInterface is an interface of a pcapng file.
type captureInterface struct {
	link  uint32
	snap  uint32 // largest size of a captured packet; 0 for no limit
	units uint64 // of a timestamp in a second
	base  int64  // seconds that are added to timestamps
}

const (
	magicMicroseconds = 0xa1b2c3d4
	magicNanoseconds  = 0xa1b23c4d
	magicModified     = 0xa1b2cd34
	magicSection      = 0x0a0d0d0a // the same in both byte orders
	magicByteOrder    = 0x1a2b3c4d
)

// newCaptureReader reads the beginning of a capture.
func newCaptureReader(r io.Reader) (*captureReader, error) {
	c := &captureReader{r: bufio.NewReaderSize(r, 1<<16)}
	start, err := c.r.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("want a capture in the format pcap or pcapng: %w", noEOF(err))
	}
	if binary.BigEndian.Uint32(start) == magicSection {
		c.next = c.nextBlock
		return c, nil
	}
	c.next = c.nextRecord
	return c, c.readHeader()
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readHeader reads the header of a pcap file.
func (c *captureReader) readHeader() error {
	header, err := c.read(24)
	if err != nil {
		return fmt.Errorf("the header of the capture is cut short: %w", noEOF(err))
	}

	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(header) {
		case magicMicroseconds:
			c.order, c.units = order, 1e6
		case magicNanoseconds:
			c.order, c.units = order, 1e9
		case magicModified:
			return errors.New("captures in the modified pcap format are not supported: convert the file with editcap")
		}
	}

	if c.order == nil {
		for magic, program := range map[string]string{
			"\x1f\x8b": "gunzip", "\xfd7zXZ": "unxz", "\x28\xb5\x2f\xfd": "unzstd", "BZh": "bunzip2",
		} {
			if strings.HasPrefix(string(header), magic) {
				return fmt.Errorf("the capture is compressed: decompress it with %s first", program)
			}
		}
		return fmt.Errorf("want a capture in the format pcap or pcapng, got a file that begins with %x", header[:4])
	}

	if major := c.order.Uint16(header[4:]); major != 2 {
		return fmt.Errorf("want a pcap file of version 2, got version %d", major)
	}
	c.link = c.order.Uint32(header[20:]) & 0xffff // above are the length of the frame check sequence and reserved bits
	return nil
}

// read returns the next n bytes, until the next call.
func (c *captureReader) read(n int) ([]byte, error) {
	if cap(c.buf) < n {
		c.buf = make([]byte, n, max(n, 1<<12))
	}
	c.buf = c.buf[:n]
	_, err := io.ReadFull(c.r, c.buf)
	return c.buf, err
}

// nextRecord reads a packet of a pcap file. It returns io.EOF at the end.
func (c *captureReader) nextRecord() (packet, error) {
	header, err := c.read(16)
	if errors.Is(err, io.EOF) {
		return packet{}, io.EOF
	}
	if err != nil {
		return packet{}, fmt.Errorf("the capture is cut short: %w", err)
	}
	seconds, fraction := c.order.Uint32(header), int64(c.order.Uint32(header[4:]))
	size, whole := c.order.Uint32(header[8:]), c.order.Uint32(header[12:])
	if size > maxPacket {
		return packet{}, fmt.Errorf("the capture is corrupt: a packet of %d bytes", size)
	}
	data, err := c.read(int(size))
	if err != nil {
		return packet{}, fmt.Errorf("the capture is cut short: %w", noEOF(err))
	}
	return packet{time.Unix(int64(seconds), fraction*(1e9/c.units)), c.link, data, size >= whole}, nil
}

// The types of blocks of a pcapng file.
const (
	blockInterface      = 1
	blockPacket         = 2 // obsolete
	blockSimplePacket   = 3
	blockEnhancedPacket = 6
)

// nextBlock reads blocks of a pcapng file up to the next packet. It returns io.EOF at the end.
func (c *captureReader) nextBlock() (packet, error) {
	for {
		kind, body, err := c.block()
		if err != nil {
			return packet{}, err
		}

		switch kind {
		case blockInterface:
			err = c.addInterface(body)
		case blockPacket, blockEnhancedPacket:
			if len(body) < 20 {
				return packet{}, errShortBlock
			}
			n := c.order.Uint32(body)
			if kind == blockPacket {
				n = uint32(c.order.Uint16(body))
			}
			at := uint64(c.order.Uint32(body[4:]))<<32 | uint64(c.order.Uint32(body[8:]))
			return c.packet(n, at, c.order.Uint32(body[12:]), c.order.Uint32(body[16:]), body[20:])
		case blockSimplePacket:
			if len(body) < 4 || len(c.interfaces) == 0 {
				return packet{}, errShortBlock
			}
			size := c.order.Uint32(body)
			captured := min(size, uint32(len(body)-4))
			if snap := c.interfaces[0].snap; snap > 0 {
				captured = min(captured, snap)
			}
			return c.packet(0, 0, captured, size, body[4:])
		}

		if err != nil {
			return packet{}, err
		}
	}
}

var errShortBlock = errors.New("the capture is corrupt: a block is too short")

// packet returns the packet of a block.
func (c *captureReader) packet(n uint32, timestamp uint64, size, whole uint32, data []byte) (packet, error) {
	if uint64(n) >= uint64(len(c.interfaces)) {
		return packet{}, fmt.Errorf("the capture is corrupt: a packet of interface %d, which it does not describe", n)
	}
	if uint64(size) > uint64(len(data)) {
		return packet{}, errShortBlock
	}
	i := c.interfaces[n]
	fraction := timestamp % i.units
	nanoseconds := int64(float64(fraction) / float64(i.units) * 1e9)
	if i.units <= 1e9 && 1e9%i.units == 0 {
		nanoseconds = int64(fraction * (1e9 / i.units))
	}
	return packet{time.Unix(int64(timestamp/i.units)+i.base, nanoseconds), i.link, data[:size], size >= whole}, nil
}

// block reads one block.
func (c *captureReader) block() (kind uint32, body []byte, err error) {
	header, err := c.r.Peek(12)
	switch {
	case len(header) == 0 && errors.Is(err, io.EOF):
		return 0, nil, io.EOF
	case err != nil:
		return 0, nil, fmt.Errorf("the capture is cut short: %w", noEOF(err))
	}

	if binary.BigEndian.Uint32(header) == magicSection {
		switch {
		case binary.LittleEndian.Uint32(header[8:]) == magicByteOrder:
			c.order = binary.LittleEndian
		case binary.BigEndian.Uint32(header[8:]) == magicByteOrder:
			c.order = binary.BigEndian
		default:
			return 0, nil, errors.New("the capture is corrupt: a section without its byte order")
		}
		c.interfaces = nil // they belong to a section
	}

	kind, size := c.order.Uint32(header), c.order.Uint32(header[4:])
	if size < 12 || size%4 != 0 || size > maxPacket+64<<10 {
		return 0, nil, fmt.Errorf("the capture is corrupt: a block of %d bytes", size)
	}

	all, err := c.read(int(size))
	if err != nil {
		return 0, nil, fmt.Errorf("the capture is cut short: %w", noEOF(err))
	}
	if c.order.Uint32(all[size-4:]) != size {
		return 0, nil, errors.New("the capture is corrupt: a block with two different lengths")
	}
	return kind, all[8 : size-4], nil
}

// addInterface reads an interface description.
func (c *captureReader) addInterface(body []byte) error {
	if len(body) < 8 {
		return errShortBlock
	}
	if len(c.interfaces) == maxInterfaces {
		return fmt.Errorf("the capture has more than %d interfaces", maxInterfaces)
	}

	i := captureInterface{link: uint32(c.order.Uint16(body)), snap: c.order.Uint32(body[4:]), units: 1e6}
	for options := body[8:]; len(options) >= 4; {
		code, size := c.order.Uint16(options), int(c.order.Uint16(options[2:]))
		padded := (size + 3) &^ 3
		if code == 0 || 4+padded > len(options) {
			break
		}

		switch value := options[4 : 4+size]; {
		case code == 9 && size == 1: // if_tsresol
			units, ok := resolution(value[0])
			if !ok {
				return fmt.Errorf("the capture is corrupt: an interface with a time resolution of %#x", value[0])
			}
			i.units = units
		case code == 14 && size == 8: // if_tsoffset
			i.base = int64(c.order.Uint64(value))
		}
		options = options[4+padded:]
	}
	c.interfaces = append(c.interfaces, i)
	return nil
}

// resolution returns the number of units in a second.
func resolution(b byte) (units uint64, ok bool) {
	n := b & 0x7f
	if b&0x80 != 0 {
		return 1 << (n & 63), n < 63
	}
	units = 1
	for range min(n, 20) {
		units *= 10
	}
	return units, n < 20
}
