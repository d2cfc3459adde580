package wire

import (
	"encoding/binary"
	"regexp"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// validRecords are records in the text of zone files.
var validRecords = []string{
	"A 192.0.2.1", "AAAA 2001:db8::1", "HINFO a b", `TXT ""`, `TXT "a" "" "b"`, `TXT "` + strings.Repeat("x", 255) + `" "y"`,
	`SPF "v=spf1 -all"`, "X25 1234", "GPOS -32.6882 116.8652 10.0", "LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m",
	"CERT 1 2 3 AAAA", "DS 1 8 2 " + strings.Repeat("AB", 32), "CDS 0 0 0 00", "DNSKEY 256 3 8 AAAA", "CDNSKEY 0 3 0 AA==",
	"SSHFP 1 1 " + strings.Repeat("AB", 20), "RRSIG A 8 2 60 20300101000000 20200101000000 1 example. AAAA",
	"NSEC z.example. A RRSIG NSEC TYPE65534", "NSEC3 1 0 1 AABB VNK9OOAVKBP5UKJVJI2IKSURDLSKBJSK A RRSIG",
	"NSEC3 1 0 0 - VNK9OOAVKBP5UKJVJI2IKSURDLSKBJSK", "NSEC3PARAM 1 0 0 -", "DHCID AAAA", "TLSA 3 1 1 " + strings.Repeat("AB", 32),
	"SMIMEA 3 0 0 AB", "SMIMEA 3 1 2 " + strings.Repeat("AB", 64), "TLSA 3 1 255 AB", "CSYNC 1 3 A NS", "ZONEMD 1 1 1 " + strings.Repeat("AB", 48), "NID 10 0014:4fff:ff20:ee64",
	"L32 10 10.1.2.0", "L64 10 2001:0DB8:1140:1000", "LP 10 l64.example.", "EUI48 00-00-5e-00-53-2a", "EUI64 00-00-5e-ef-10-00-00-2a",
	`URI 10 1 "ftp://example/"`, `CAA 0 issue "ca.example"`, `CAA 128 iodef ""`, "OPENPGPKEY AAAA", "APL 1:192.0.2.0/24",
	"HTTPS 0 example.", "HTTPS 1 .", "HTTPS 1 . alpn=h2,h3 no-default-alpn port=8443 ipv4hint=192.0.2.1,192.0.2.2 ech=AAAA ipv6hint=2001:db8::1",
	"DS 1 8 1 " + strings.Repeat("AB", 20), "DS 1 8 3 " + strings.Repeat("AB", 32), "DS 1 8 4 " + strings.Repeat("AB", 48),
	"DS 1 8 5 " + strings.Repeat("AB", 32), "DS 1 8 6 " + strings.Repeat("AB", 32), "DS 1 8 7 AB", "DS 1 8 0 AB", "DLV 1 8 2 " + strings.Repeat("AB", 32),
	"TA 1 8 2 " + strings.Repeat("AB", 32), "CDS 1 8 255 ABAB", "SSHFP 4 2 " + strings.Repeat("AB", 32), "SSHFP 4 3 AB",
	"ZONEMD 1 1 2 " + strings.Repeat("AB", 64), "ZONEMD 1 240 240 " + strings.Repeat("AB", 12), "KEY 256 3 8 AAAA", "RKEY 0 3 8 AAAA",
	"LOC 90 0 0 S 180 0 0 W -100000.00m 90000000.00m 0.00m 0.00m", "TYPE29 \\# 1 01", "APL 1:0.0.0.0/0", "APL !2:2001:db8::/32",
	"IPSECKEY 10 0 0 .", "IPSECKEY 10 0 2 . AAAA", "IPSECKEY 10 1 2 192.0.2.1 AAAA",
	"IPSECKEY 10 2 2 2001:db8::1 AAAA", "IPSECKEY 10 3 2 a.example. AAAA", "TYPE45 \\# 4 0A040201", "AMTRELAY 10 0 0 .", "AMTRELAY 10 0 1 192.0.2.1",
	"AMTRELAY 10 0 2 2001:db8::1", "AMTRELAY 10 0 3 a.example.", "TYPE260 \\# 3 0A0401", "HIP 2 200100107B1A74DF365639CC39F1D578 AAAA",
	"HIP 2 200100107B1A74DF365639CC39F1D578 AAAA a.example. b.example.", "TALINK a.example. b.example.", "TYPE20 \\# 2 0131", "TYPE20 \\# 4 01310132",
	"NSEC3 1 0 1 AABB VNK9OOAVKBP5UKJVJI2IKSURDLSKBJSK", "CSYNC 1 3", "TYPE66 \\# 12 003B01003501610162016300", "SIG A 8 2 60 20300101000000 20200101000000 1 example. AAAA",
	"SVCB 1 . ohttp", "SVCB 1 . dohpath=/q{?a,dns}", "SVCB 0 a.example. port=1", "SVCB 1 a.example. mandatory=alpn,port alpn=dot port=853 dohpath=/dns{?dns} key65000=x", "TYPE65400 \\# 3 C00C00", "SVCB 1 . key65000",
}

// anyLength matches digests of algorithms that are not known, and records that another string may follow.
var anyLength = regexp.MustCompile(`^(C?DS \d+ \d+ [07]|CDS 1|DHCID|SSHFP 4 3|ZONEMD 1 240|TLSA 3 1 255|SMIMEA 3 0 0|TYPE20)`)

func TestValidRData(t *testing.T) {
	for _, text := range validRecords {
		rr, err := mdns.NewRR("a.example. 60 IN " + text)
		if err != nil {
			t.Fatal(err)
		}
		msg := make([]byte, 1024)
		n, err := mdns.PackRR(rr, msg, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := ReadRecord(msg[:n], 0)
		rdata := msg[r.RData:r.Next]
		if !r.Type.ValidRData(rdata) {
			t.Errorf("%s: got invalid, want valid", text)
		}

		// The field at the end of most types has a length of its own.
		last := r.Type.rdataFormat()
		if last == "" || strings.HasSuffix(last, "*") || strings.HasSuffix(last, "+") || anyLength.MatchString(text) {
			continue
		}
		if r.Type.ValidRData(append(rdata[:len(rdata):len(rdata)], 0x40)) {
			t.Errorf("%s and a byte more: got valid, want invalid", text)
		}
		if len(rdata) > 1 && rdata[len(rdata)-2] != 0 && r.Type.ValidRData(rdata[:len(rdata)-1]) && !strings.Contains(text, `TXT "a"`) {
			t.Errorf("%s without its last byte: got valid, want invalid", text)
		}
	}
}

// See CVE-2026-12244 and CVE-2026-12246 in docs/reference/advisories.md.
func TestMalformedRData(t *testing.T) {
	const svc = "\x00\x01\x00" // priority 1, the owner itself
	const ds, zonemd, loc = "\x00\x01\x08", "\x00\x00\x00\x01\x01", "\x00\x12\x16\x13\x80\x00\x00\x00\x80\x00\x00\x00\x00\x98\x96\x80"
	ab := func(n int) string { return strings.Repeat("\xab", n) }
	for _, valid := range []struct {
		typ   Type
		rdata string
	}{{typeLOC, loc}, {typeAPL, ""}, {typeAMTRELAY, "\x0a\x81\xc0\x00\x02\x01"}, {typeAMTRELAY, "\x0a\x83\x01a\x00"},
		{TypeNSEC3, "\x02\x00\x00\x01\x00\x04abcd\x00\x01\x40"}, {typeAPL, "\x00\x01\x08\x01\x0a\x00\x02\x00\x00"}, {typeAPL, "\x00\x03\x00\x01A"}, {typeAPL, "\x00\x01\x08\x02\xc0\x01"},
		{TypeTSIG, "\x01a\x00" + ab(8) + "\x00\x01a" + ab(4) + "\x00\x00"}, {249, "\x01a\x00" + ab(12) + "\x00\x00\x00\x00"}} {
		if !valid.typ.ValidRData([]byte(valid.rdata)) {
			t.Errorf("%v %q: got invalid, want valid", valid.typ, valid.rdata)
		}
	}
	for _, c := range []struct {
		typ   Type
		rdata string
	}{
		{TypeA, ""}, {TypeA, "\x01\x02\x03"}, {TypeA, "\x01\x02\x03\x04\x05"}, {TypeAAAA, "\x01\x02\x03\x04"},
		{TypeTXT, ""}, {TypeTXT, "\x05abc"}, {TypeTXT, "\x01a\x05"}, {TypeTXT, "\xffa"}, {TypeHINFO, "\x01a"}, {99, ""},
		{257, "\x00\x00"}, {257, "\x00\x05iss"}, {257, ""}, {TypeDS, "\x00\x01\x08\x02"}, {TypeDNSKEY, "\x01\x00\x03"},
		{TypeRRSIG, strings.Repeat("\x00", 18)}, {TypeRRSIG, strings.Repeat("\x00", 19)}, {TypeRRSIG, strings.Repeat("\x00", 18) + "\xc0\x0cx"},
		{TypeNSEC, "\x01a\x00\x00\x00"}, {TypeNSEC, "\x01a\x00\x00\x01"}, {TypeNSEC, "\x01a\x00\x01\x01\x40\x00\x01\x40"}, {TypeNSEC, "\x01a"},
		{TypeNSEC3, "\x01\x00\x00\x01\x00\x00"}, {TypeNSEC3, "\x01\x00\x00\x01\x05ab"}, {29, "\x00"}, {44, "\x01\x01"}, {256, "\x00\x01"},
		{TypeHTTPS, "\x00\x01"}, {TypeHTTPS, "\x00\x01\xc0\x0c"}, {TypeHTTPS, svc + "\x00"},
		{TypeHTTPS, svc + "\x00\x03\x00\x02\x20\xfb\x00\x01\x00\x03\x02h2"},   // keys out of order
		{TypeHTTPS, svc + "\x00\x03\x00\x02\x20\xfb\x00\x03\x00\x02\x20\xfb"}, // a key twice
		{TypeHTTPS, svc + "\x00\x03\x00\x05\x20\xfb"},                         // longer than the record
		{37, "\x00\x01\x00\x01\x08"}, {TypeDNSKEY, "\x01\x00\x03\x08"}, {52, "\x03\x01\x01"}, {61, ""},
		{TypeDS, ds + "\x01" + ab(19)}, {TypeDS, ds + "\x01" + ab(21)}, {TypeDS, ds + "\x02" + ab(31)}, {TypeDS, ds + "\x02" + ab(48)},
		{TypeDS, ds + "\x03" + ab(20)}, {TypeDS, ds + "\x04" + ab(32)}, {TypeDS, ds + "\x05" + ab(31)}, {TypeDS, ds + "\x06" + ab(33)},
		{TypeDS, ds + "\xff"}, {TypeCDS, ds + "\x02" + ab(20)}, {32769, ds + "\x02" + ab(33)}, {32768, ds + "\x02" + ab(33)},
		{TypeZONEMD, zonemd + "\x01" + ab(47)}, {TypeZONEMD, zonemd + "\x02" + ab(48)}, {TypeZONEMD, zonemd + "\xf0" + ab(11)}, {TypeZONEMD, zonemd},
		{typeSSHFP, "\x01\x01" + ab(32)}, {typeSSHFP, "\x01\x02" + ab(20)}, {typeSSHFP, "\x01\x03"},
		{typeTLSA, "\x03\x01\x01" + ab(31)}, {typeTLSA, "\x03\x01\x02" + ab(32)}, {typeSMIMEA, "\x03\x01\x00"}, {typeDHCID, "\x00\x01"},
		{typeDHCID, "\x00\x01\x01" + ab(31)},
		{typeLOC, ""}, {typeLOC, loc[:15]}, {typeLOC, loc + "x"}, {typeLOC, "\x00\x1a" + loc[2:]}, {typeLOC, "\x00\x12\xa0" + loc[3:]},
		{typeLOC, loc[:4] + "\x00\x00\x00\x00" + loc[8:]}, {typeLOC, loc[:8] + "\xff\xff\xff\xff" + loc[12:]},
		{typeAPL, "\x00"}, {typeAPL, "\x00\x01\x08"}, {typeAPL, "\x00\x01\x21\x00"}, {typeAPL, "\x00\x01\x20\x05\x01\x01\x01\x01\x01"},
		{typeAPL, "\x00\x01\x08\x01"}, {typeAPL, "\x00\x01\x08\x02\x0a\x00"}, {typeAPL, "\x00\x02\x81\x00"}, {typeAPL, "\x00\x02\x80\x11" + ab(17)},
		{typeAPL, "\x00\x01\x08\x01\x0a\x00"}, {typeAPL, "\x00\x03\x08\x02\x0a"},
		{typeIPSECKEY, "\x0a\x00"}, {typeIPSECKEY, "\x0a\x00\x02"}, {typeIPSECKEY, "\x0a\x00\x00k"}, {typeIPSECKEY, "\x0a\x01\x00\xc0\x00\x02"},
		{typeIPSECKEY, "\x0a\x02\x02" + ab(16)}, {typeIPSECKEY, "\x0a\x03\x02\xc0\x0ck"}, {typeIPSECKEY, "\x0a\x03\x02\x01ak"},
		{typeAMTRELAY, "\x0a"}, {typeAMTRELAY, "\x0a\x00x"}, {typeAMTRELAY, "\x0a\x81\xc0\x00\x02"}, {typeAMTRELAY, "\x0a\x02" + ab(15)},
		{typeAMTRELAY, "\x0a\x03\x01a"}, {typeAMTRELAY, "\x0a\x03\x01a\x00x"},
		{typeHIP, "\x01\x02\x00"}, {typeHIP, "\x00\x02\x00\x01k"}, {typeHIP, "\x01\x02\x00\x00t"}, {typeHIP, "\x01\x02\x00\x02tk"}, {typeHIP, "\x01\x02\x00\x01tk\x01a"},
		{typeHIP, "\x01\x02\x00\x01tk\xc0\x0c"},
		{TypeNSEC, "\x01a\x00"}, {TypeNSEC, "\x01a\x00\x00\x02\x40\x00"}, {TypeNSEC, "\x01a\x00\x00\x01\x00"}, {TypeNSEC, "\x01a\x00\x00\x21" + ab(33)},
		{TypeNSEC3, "\x01\x00\x00\x01\x00\x13" + ab(19)}, {62, "\x00\x00\x00\x01\x00\x03\x00\x01\x00"}, {TypeNSEC3PARAM, "\x01\x00\x00\x01\x02a"},
		{TypeTSIG, "\x01a\x00" + ab(8) + "\x00\x02a"}, {TypeTSIG, "\x01a\x00" + ab(8) + "\x00\x01a" + ab(4) + "\x00\x01"}, {249, "\x01a\x00" + ab(12) + "\x00\x01"},
		{typeSIG, strings.Repeat("\x00", 19)}, {typeNXT, "\x01a\x00"}, {19, "\x00"}, {19, "\x011\x012"}, {20, ""}, {20, "\x011\x012\x013"}, {27, "\x011\x012\x00"},
		{256, "\x00\x01\x00\x01"}, {108, ab(5)}, {109, ab(9)}, {58, "\x01a\x00"}, {66, "\x00\x3b\x01\x00\x35"}, {11, ab(4)},
		{TypeHTTPS, svc + "\x00\x07\x00\x00"}, {TypeHTTPS, svc + "\x00\x07\x00\x03dns"}, {TypeHTTPS, svc + "\x00\x07\x00\x03/q?"}, {TypeHTTPS, svc + "\x00\x08\x00\x01x"},
		{257, "\x00\x05is-ueca"}, {257, "\x00\x02\xc3\xa4ca"},
		{TypeHTTPS, svc + "\x00\x02\x00\x00"},                                                             // no-default-alpn without alpn
		{TypeHTTPS, svc + "\x00\x03\x00\x01\x20"},                                                         // port
		{TypeHTTPS, svc + "\x00\x01\x00\x00"},                                                             // alpn
		{TypeHTTPS, svc + "\x00\x01\x00\x01\x00"},                                                         // alpn
		{TypeHTTPS, svc + "\x00\x01\x00\x02\x05h"},                                                        // alpn
		{TypeHTTPS, svc + "\x00\x02\x00\x01x"},                                                            // no-default-alpn
		{TypeHTTPS, svc + "\x00\x04\x00\x03\x01\x02\x03"},                                                 // ipv4hint
		{TypeHTTPS, svc + "\x00\x06\x00\x04\x01\x02\x03\x04"},                                             // ipv6hint
		{TypeHTTPS, svc + "\x00\x00\x00\x02\x00\x03"},                                                     // mandatory, without the key
		{TypeHTTPS, svc + "\x00\x00\x00\x02\x00\x00"},                                                     // mandatory mandatory
		{TypeSVCB, svc + "\x00\x00\x00\x04\x00\x03\x00\x01\x00\x01\x00\x02\x01x\x00\x03\x00\x02\x00\x01"}, // mandatory, out of order
	} {
		if c.typ.ValidRData([]byte(c.rdata)) {
			t.Errorf("%v %q: got valid, want invalid", c.typ, c.rdata)
		}
	}
}

func FuzzValidRData(f *testing.F) {
	for _, t := range []Type{TypeTXT, TypeHTTPS, TypeNSEC, TypeNSEC3, TypeRRSIG} {
		f.Add(uint16(t), []byte("\x01a\x00\x00\x01\x40"))
	}
	f.Fuzz(func(t *testing.T, typ uint16, rdata []byte) {
		if len(rdata) > MaxMessage {
			return
		}
		valid := Type(typ).ValidRData(rdata)
		switch Type(typ) {
		case TypeTXT, TypeHTTPS, TypeRRSIG, TypeNSEC, TypeNSEC3:
		default:
			return
		}

		// The reference accepts all that is valid.
		record := AppendRecordHeader(nil, "\x00", Type(typ), 0, len(rdata))
		binary.BigEndian.PutUint16(record[len(record)-2:], uint16(len(rdata)))
		if _, _, err := mdns.UnpackRR(append(record, rdata...), 0); err != nil && valid {
			t.Errorf("type %d, %x: got valid, and from the reference %v", typ, rdata, err)
		}
	})
}
