package builtin

import (
	"bytes"
	"net"
	"os"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	mdns "github.com/miekg/dns"
)

// database writes a database of a type, with the country of each network.
func database(t *testing.T, path, kind string, countries map[string]string) {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for prefix, code := range countries {
		_, to, err := net.ParseCIDR(prefix)
		if err == nil {
			err = tree.Insert(to, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var data bytes.Buffer
	if _, err = tree.WriteTo(&data); err == nil {
		err = os.WriteFile(path+".new", data.Bytes(), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Values of a database select a view, are in the answers of a template, and are sent to an
// upstream by rewrite.
func TestGeoIP(t *testing.T) {
	upstream := subnetUpstream(t)
	t.Chdir(folder(t))
	database(t, "country.mmdb", "GeoLite2-Country", map[string]string{"127.0.0.0/8": "FR", "192.0.2.0/24": "IT"})
	const common = `
    metadata
    geoip country.mmdb {
        edns-subnet
    }
`
	s := &encrypted{t: t}
	s.load(`. {` + common + `
    view italy {
        expr metadata('geoip/country/code') == 'IT'
    }
    template IN TXT . {
        answer "{{ .Name }} 60 IN TXT italy"
    }
}
. {` + common + `
    template IN TXT . {
        answer "{{ .Name }} 60 IN TXT country={{ .Meta \"geoip/country/code\" }}"
    }
    rewrite edns0 local set 65001 {geoip/country/code}
    forward . ` + upstream + `
}`)
	t.Cleanup(s.stop)
	txt := func(subnet net.IP) string {
		t.Helper()
		q := new(mdns.Msg).SetQuestion("www.example.", mdns.TypeTXT)
		if subnet != nil {
			q.SetEdns0(1232, false)
			q.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: subnet}}
		}
		reply, _, err := (&mdns.Client{Timeout: patience}).Exchange(q, "127.0.0.1:"+s.port(0))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reply.Answer {
			return r.(*mdns.TXT).Txt[0]
		}
		return reply.String()
	}
	for subnet, want := range map[string]string{"": "country=FR", "192.0.2.0": "italy", "198.51.100.0": "country="} {
		if got := txt(net.ParseIP(subnet)); got != want {
			t.Errorf("subnet %q: got %q, want %q", subnet, got, want)
		}
	}
	if reply := s.query(0, "a.example."); len(reply.Answer) != 1 || reply.Answer[0].(*mdns.A).A.String() != "70.82.0.0" {
		t.Errorf("option for the upstream: got %v, want an address with the letters FR", reply)
	}
	// The country of the client changes, and so does its view.
	database(t, "country.mmdb", "GeoLite2-Country", map[string]string{"127.0.0.0/8": "IT"})
	s.eventually("the view is italy", func() bool { return txt(nil) == "italy" })
}

// subnetUpstream starts a server whose answers are the bytes of the option 65001.
func subnetUpstream(t *testing.T) (at string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mdns.Server{PacketConn: conn, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		reply := new(mdns.Msg).SetReply(q)
		address := make(net.IP, 4)
		if opt := q.IsEdns0(); opt != nil {
			for _, o := range opt.Option {
				if local, ok := o.(*mdns.EDNS0_LOCAL); ok && local.Code == 65001 {
					copy(address, local.Data)
				}
			}
		}
		reply.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: address}}
		_ = w.WriteMsg(reply) // the client reports a missing reply
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	return conn.LocalAddr().String()
}
