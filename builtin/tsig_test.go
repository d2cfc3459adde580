package builtin

import (
	"strings"
	"testing"
)

// Knot's and BIND's clients sign queries and verify the replies on every transport.
func TestTSIGClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const secret, wrong = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk=", "AAAA"
	const block = " {\n tls cert.pem key.pem\n tsig . {\n secret key. " + secret + "\n require all\n}\n template IN TXT . {\n answer \"{{ .Name }} 60 IN TXT answered\"\n}\n}\n"
	for _, c := range []struct{ scheme, kdig, dig string }{
		{"", "+notcp", "+notcp"},
		{"", "+tcp", "+tcp"},
		{"tls://", "+tls", "+tls"},
		{"https://", "+https", "+https"},
		{"quic://", "+quic", ""},
	} {
		t.Run(c.scheme+c.kdig, func(t *testing.T) {
			s := serveEncrypted(t, c.scheme+"."+block)
			for _, algorithm := range []string{"hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"} {
				out := s.run("kdig", c.kdig, "-y", algorithm+":key.:"+secret, "@127.0.0.1", "-p", s.port(0), "a.example", "TXT")
				if !strings.Contains(out, "\"answered\"") || strings.Contains(out, "WARNING") {
					t.Errorf("kdig with %s: got\n%s\nwant an answer with a valid signature", algorithm, out)
				}
				if c.dig == "" { // BIND's client has no such transport
					continue
				}
				out = s.run("dig", c.dig, "-y", algorithm+":key.:"+secret, "@127.0.0.1", "-p", s.port(0), "a.example", "TXT")
				if !strings.Contains(out, "\"answered\"") || strings.Contains(out, "could not be validated") {
					t.Errorf("dig with %s: got\n%s\nwant an answer with a valid signature", algorithm, out)
				}
			}
			for key, want := range map[string]string{"key.": "BADSIG", "other.": "BADKEY"} {
				if out := s.run("kdig", c.kdig, "-y", "hmac-sha256:"+key+":"+wrong, "@127.0.0.1", "-p", s.port(0), "a.example", "TXT"); !strings.Contains(out, want) || strings.Contains(out, "answered") {
					t.Errorf("kdig with a wrong key %s: got\n%s\nwant %s", key, out, want)
				}
			}
			if out := s.run("kdig", c.kdig, "@127.0.0.1", "-p", s.port(0), "a.example", "TXT"); !strings.Contains(out, "REFUSED") {
				t.Errorf("kdig without a key: got\n%s\nwant REFUSED", out)
			}
		})
	}
}
