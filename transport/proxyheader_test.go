package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// proxyV2Header returns a header of version 2.
func proxyV2Header(command, family byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append([]byte(proxyV2), command, family), uint16(len(body))), body...)
}

// proxyV2From returns a header for a client.
func proxyV2From(client string) []byte {
	at := netip.MustParseAddrPort(client)
	family, body := byte(0x21), bytes.Repeat([]byte{0}, 36)
	copy(body, at.Addr().AsSlice())
	binary.BigEndian.PutUint16(body[32:], at.Port())
	if at.Addr().Is4() {
		family, body = 0x12, append(body[:8], byte(at.Port()>>8), byte(at.Port()), 0, 53)
	}
	return proxyV2Header(0x21, family, body)
}

// withChecksum returns a header with an extension for its checksum, which add changes.
func withChecksum(header []byte, add uint32) []byte {
	h := append(bytes.Clone(header), 0x03, 0, 4, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(h[14:], uint16(len(h)-proxyV2Len))
	binary.BigEndian.PutUint32(h[len(h)-4:], crc32.Checksum(h, crc32.MakeTable(crc32.Castagnoli))+add)
	return h
}

// withTLVs returns a header with TLVs at its end.
func withTLVs(header []byte, tlvs string) []byte {
	h := append(bytes.Clone(header), tlvs...)
	binary.BigEndian.PutUint16(h[14:], uint16(len(h)-proxyV2Len))
	return h
}

// The TLVs of a header, and what is kept of them.
func TestProxyHeaderTLVs(t *testing.T) {
	v4, v6 := proxyV2From("192.0.2.1:4660"), proxyV2From("[2001:db8::1]:4660")
	long := "\xea\x04\x00" + strings.Repeat("x", 1024)
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"none", v4, ""},
		{"one", withTLVs(v4, "\xea\x00\x02hi"), "\xea\x00\x02hi"},
		{"one, IPv6", withTLVs(v6, "\xea\x00\x02hi"), "\xea\x00\x02hi"},
		{"two, and data after the header", append(withTLVs(v4, "\xea\x00\x01h\x02\x00\x01i"), "\xea\x00\x00"...), "\xea\x00\x01h\x02\x00\x01i"},
		{"without a value", withTLVs(v4, "\xea\x00\x00"), "\xea\x00\x00"},
		{"long", withTLVs(v4, long), long},
		{"padding", withTLVs(v4, "\x04\x00\x03abc\xea\x00\x01h"), "\x04\x00\x00\xea\x00\x01h"},
		{"Unix", withTLVs(proxyV2Header(0x21, 0x31, make([]byte, 216)), "\xea\x00\x01h"), "\xea\x00\x01h"},
		{"local", withTLVs(proxyV2Header(0x20, 0x12, make([]byte, 12)), "\xea\x00\x01h"), ""},
		{"unspecified", proxyV2Header(0x21, 0, []byte("\xea\x00\x01h")), ""},
		{"version 1", []byte("PROXY TCP4 192.0.2.1 198.51.100.1 4660 53\r\n\xea\x00\x01h"), ""},
	} {
		h, _, err := parseProxyHeader(c.data)
		if got := keptTLVs(h.tlvs); err != nil || got != c.want {
			t.Errorf("%s: got TLVs %q, error %v; want %q", c.name, got, err, c.want)
		}
	}
	for _, tlvs := range []string{"\xea", "\xea\x00", "\xea\x00\x01", "\xea\xff\xffhi", "\xea\x00\x01h\x02"} {
		if _, _, err := parseProxyHeader(withTLVs(v4, tlvs)); err == nil || err.Error() != "version 2: extension longer than the header" {
			t.Errorf("TLVs %q: got error %v, want one", tlvs, err)
		}
	}
}

func TestParseProxyHeader(t *testing.T) {
	ipv4 := []byte{192, 0, 2, 1, 198, 51, 100, 1, 0x12, 0x34, 0, 53}
	mapped := proxyV2From("[::ffff:192.0.2.1]:4660")
	for _, c := range []struct {
		name, data string
		client     string // empty if the header names none
		size       int    // -1 is the whole of data
		err        string
	}{
		{"version 1", "PROXY TCP4 192.0.2.1 198.51.100.1 4660 53\r\n", "192.0.2.1:4660", -1, ""},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 4660 53\r\n", "[2001:db8::1]:4660", -1, ""},
		{"version 1, mapped address", "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.1 4660 53\r\n", "192.0.2.1:4660", -1, ""},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", "", -1, ""},
		{"version 1, unknown with addresses", "PROXY UNKNOWN ffff::1 ffff::1 1 2\r\nrest", "", 35, ""},
		{"version 1, other family", "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "", 0, `version 1: invalid address or port in "PROXY TCP4 2001:db8::1 2001:db8::2 1 2"`},
		{"version 1, zone", "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", "", 0, `version 1: invalid address or port in "PROXY TCP6 fe80::1%eth0 fe80::2 1 2"`},
		{"version 1, large port", "PROXY TCP4 192.0.2.1 192.0.2.2 65536 53\r\n", "", 0, `version 1: invalid address or port in "PROXY TCP4 192.0.2.1 192.0.2.2 65536 53"`},
		{"version 1, leading zero", "PROXY TCP4 192.0.2.1 192.0.2.2 053 53\r\n", "", 0, `version 1: invalid address or port in "PROXY TCP4 192.0.2.1 192.0.2.2 053 53"`},
		{"version 1, two spaces", "PROXY TCP4  192.0.2.1 192.0.2.2 1 53\r\n", "", 0, `version 1: got "PROXY TCP4  192.0.2.1 192.0.2.2 1 53", want TCP4 or TCP6, two addresses and two ports`},
		{"version 1, other protocol", "PROXY UDP4 192.0.2.1 192.0.2.2 1 53\r\n", "", 0, `version 1: got "PROXY UDP4 192.0.2.1 192.0.2.2 1 53", want TCP4 or TCP6, two addresses and two ports`},
		{"version 1, long", "PROXY UNKNOWN " + strings.Repeat("x", 100), "", 0, "version 1: line longer than 107 bytes"},
		{"version 2", string(proxyV2Header(0x21, 0x12, ipv4)), "192.0.2.1:4660", -1, ""},
		{"version 2, stream", string(proxyV2Header(0x21, 0x11, ipv4)) + "rest", "192.0.2.1:4660", 28, ""},
		{"version 2, IPv6", string(proxyV2From("[2001:db8::1]:4660")), "[2001:db8::1]:4660", -1, ""},
		{"version 2, mapped address", string(mapped), "192.0.2.1:4660", -1, ""},
		{"version 2, local", string(proxyV2Header(0x20, 0x12, ipv4)), "", -1, ""},
		{"version 2, local without addresses", string(proxyV2Header(0x20, 0, nil)), "", -1, ""},
		{"version 2, unspecified", string(proxyV2Header(0x21, 0, []byte("anything"))), "", -1, ""},
		{"version 2, unspecified protocol", string(proxyV2Header(0x21, 0x10, ipv4)), "", -1, ""},
		{"version 2, Unix", string(proxyV2Header(0x21, 0x31, make([]byte, 216))), "", -1, ""},
		{"version 2, extension", string(proxyV2Header(0x21, 0x12, append(bytes.Clone(ipv4), 4, 0, 2, 'h', 'i'))), "192.0.2.1:4660", -1, ""},
		{"version 2, checksum", string(withChecksum(proxyV2Header(0x21, 0x12, ipv4), 0)), "192.0.2.1:4660", -1, ""},
		{"version 2, wrong checksum", string(withChecksum(proxyV2Header(0x21, 0x12, ipv4), 1)), "", 0, "version 2: wrong checksum"},
		{"version 2, short checksum", string(proxyV2Header(0x21, 0x12, append(bytes.Clone(ipv4), 3, 0, 2, 0, 0))), "", 0, "version 2: checksum of 2 bytes, want 4"},
		{"version 2, long extension", string(proxyV2Header(0x21, 0x12, append(bytes.Clone(ipv4), 4, 0, 3, 'h', 'i'))), "", 0, "version 2: extension longer than the header"},
		{"version 2, short addresses", string(proxyV2Header(0x21, 0x21, ipv4)), "", 0, "version 2: 12 bytes, want at least 36 of addresses"},
		{"version 2, unknown command", string(proxyV2Header(0x22, 0x11, ipv4)), "", 0, "version 2: unknown version and command 0x22"},
		{"version 3", string(proxyV2Header(0x31, 0x11, ipv4)), "", 0, "version 2: unknown version and command 0x31"},
		{"version 2, unknown family", string(proxyV2Header(0x21, 0x41, ipv4)), "", 0, "version 2: unknown family and protocol 0x41"},
		{"version 2, unknown protocol", string(proxyV2Header(0x21, 0x13, ipv4)), "", 0, "version 2: unknown family and protocol 0x13"},
		{"version 2, large", string(proxyV2Header(0x21, 0, make([]byte, 4096))), "", 0, "version 2: header of 4112 bytes, want at most 2048"},
		{"a query", "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", "", 0, ""},
		{"nearly version 1", "PROXI TCP4", "", 0, ""},
		{"nothing", "", "", 0, "incomplete header"},
	} {
		h, size, err := parseProxyHeader([]byte(c.data))
		if err != nil {
			if err.Error() != c.err {
				t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if c.size < 0 {
			c.size = len(c.data)
		}
		client := ""
		if h.client.IsValid() {
			client = h.client.String()
		}
		if c.err != "" || client != c.client || size != c.size {
			t.Errorf("%s: got client %q, size %d; want %q, %d, error %q", c.name, client, size, c.client, c.size, c.err)
		}
	}
}

// FuzzProxyHeader checks that a header has the same meaning whatever follows it, and that it
// is incomplete without its last bytes. Its TLVs are a part of it, and split into the same again
// when they are kept.
func FuzzProxyHeader(f *testing.F) {
	for _, h := range []string{"PROXY TCP4 192.0.2.1 198.51.100.1 4660 53\r\nx", "PROXY UNKNOWN\r\n", string(proxyV2From("192.0.2.1:53")), string(proxyV2From("[::1]:53")),
		string(withTLVs(proxyV2From("192.0.2.1:53"), "\xea\x00\x02hi\x04\x00\x01x\x02\x00\x00")), string(withTLVs(proxyV2From("[::1]:53"), "\x01\xff\xff")),
		string(withTLVs(proxyV2Header(0x21, 0x31, make([]byte, 216)), "\xea\x00\x02h")), string(withTLVs(proxyV2From("192.0.2.1:53"), "\xea\x00")),
		string(withChecksum(proxyV2From("192.0.2.1:53"), 0)), string(proxyV2Header(0x20, 0, nil)), proxyV2, ""} {
		f.Add([]byte(h))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, size, err := parseProxyHeader(data)
		if size > len(data) || err == nil && size == 0 && !reflect.DeepEqual(h, proxyHeader{}) {
			t.Fatalf("%s: got header %v of %d bytes of %d", hex.EncodeToString(data), h, size, len(data))
		}
		if err != nil || size == 0 {
			return
		}
		for end := range size {
			if _, _, err := parseProxyHeader(data[:end]); !errors.Is(err, errIncomplete) {
				t.Fatalf("%s: the first %d bytes of %d: got error %v, want %v", hex.EncodeToString(data), end, size, err, errIncomplete)
			}
		}
		if again, n, err := parseProxyHeader(append(bytes.Clone(data[:size]), "rest"...)); err != nil || !reflect.DeepEqual(again, h) || n != size {
			t.Fatalf("%s: with other data after it: got %v, %d, %v; want %v, %d", hex.EncodeToString(data), again, n, err, h, size)
		}

		kept := keptTLVs(h.tlvs)
		if len(kept) > len(h.tlvs) || len(h.tlvs) > size || keptTLVs([]byte(kept)) != kept || (kept == "") != (len(h.tlvs) == 0) {
			t.Fatalf("%s: got TLVs %x, of which %x are kept", hex.EncodeToString(data), h.tlvs, kept)
		}
	})
}
