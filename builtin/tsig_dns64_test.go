package builtin

import (
	"net"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// A query with a signature that is not valid gets nothing by the queries that dns64 makes for it.
func TestWrongSignatureGetsNothingOfDNS64(t *testing.T) {
	const secret, other = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk=", "X28hl0BOfAL5G0jsmJWSacrwn7YRm2f6U5brnzwWEus="
	s := serveEncrypted(t, `. {
    tsig {
        secret a.key. `+secret+`
        require all
    }
    dns64 {
        allow_ipv4
    }
    template IN A . {
        answer "{{ .Name }} 60 IN A 192.0.2.1"
    }
    template IN ANY .
}`)
	for _, c := range []struct {
		name, key, secret string
		rcode, answers    int
	}{
		{"valid", "a.key.", secret, mdns.RcodeSuccess, 1},
		{"unknown key", "b.key.", secret, mdns.RcodeNotAuth, 0},
		{"wrong signature", "a.key.", other, mdns.RcodeNotAuth, 0},
	} {
		q := new(mdns.Msg).SetQuestion("www.example.", mdns.TypeAAAA)
		q.SetTsig(c.key, mdns.HmacSHA256, 300, time.Now().Unix())
		packet, _, err := mdns.TsigGenerate(q, c.secret, "", false)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("udp", "127.0.0.1:"+s.port(0))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		reply := new(mdns.Msg)
		if err == nil {
			err = reply.Unpack(buf[:n])
		}
		if err != nil || reply.Rcode != c.rcode || len(reply.Answer) != c.answers {
			t.Errorf("%s: got error %v, %v, want %s and %d answers", c.name, err, reply, mdns.RcodeToString[c.rcode], c.answers)
		}
	}
}
