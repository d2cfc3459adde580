package local_test

import (
	"slices"
	"testing"
)

// Server blocks with records of their own in one zone list all of them; the blocks of one list with several ports
// and those of one cluster list theirs once.
func TestRecordsOfServerBlocks(t *testing.T) {
	dir := t.TempDir()
	const apex = "@ 60 IN SOA ns h 1 2 3 4 5\n@ 60 IN NS ns\n"
	writeFiles(t, dir, map[string]string{
		"objects/a.yaml": objects, "internal": apex + "in 60 IN A 10.0.0.1\n", "external": apex + "out 60 IN A 10.0.0.2\n",
	})
	l := startIn(t, dir, `example.org {
    view internal {
        expr client_ip() == '10.0.0.1'
    }
    file DIR/internal
    records {
        mail.example.org. 60 A 10.0.0.3
    }
}
example.org {
    file DIR/external
    records {
        www.example.org. 60 A 10.0.0.4
    }
}
cluster.local:54 cluster.local:55 example.org:54 example.org:55 {
    kubernetes cluster.local {
        manifests DIR/objects
    }
    file DIR/internal example.org
    records example.org {
        mail.example.org. 60 A 10.0.0.5
    }
}
`)

	var got []string
	for r := range l.Records() {
		if r.Type == "A" && (r.Zone == "example.org." || r.Name == "web.shop.svc.cluster.local.") {
			got = append(got, r.Name+" "+r.Data)
		}
	}
	slices.Sort(got)
	want := []string{
		"in.example.org. 10.0.0.1", "mail.example.org. 10.0.0.3", "mail.example.org. 10.0.0.5", "out.example.org. 10.0.0.2",
		"web.shop.svc.cluster.local. 10.96.0.10", "www.example.org. 10.0.0.4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}
