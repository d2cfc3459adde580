// Package dnstest runs the scripts of testdata/script: a Corefile, the objects
// of a cluster, questions, and the answers as dig would print them. Its callers
// are tests: those beside it, against a folder of manifests, and those of the
// module kubetest, against a live API server too. No other code may import it.
//
// # The language of scripts
//
// A script is a text file in parts, each begun by a line such as "-- name --".
// What comes first is a comment that says which rule is shown, with its number
// if it is one of a specification:
//
//	2.3.1a: a Service with an IPv4 ClusterIP has an A record at its name.
//
//	-- Corefile --
//	.:53 {
//	    kubernetes cluster.local in-addr.arpa ip6.arpa {
//	        $SOURCE
//	    }
//	}
//	-- cluster.yaml --
//	apiVersion: v1
//	kind: Service
//	metadata: {name: api, namespace: shop}
//	spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
//	-- questions --
//	? api.shop.svc.cluster.local A
//	NOERROR aa
//	api.shop.svc.cluster.local. 5 IN A 10.96.0.10
//
// $SOURCE is where the objects come from; the runner writes what belongs there.
// Addresses and ports in the Corefile count for nothing: all its blocks are
// asked at one address of the loopback interface. Namespaces are objects like
// any other: a script that uses one lists it.
//
// A question begins with "? ", a name (as it is to be spelled in the packet; the
// final dot may be missing) and a type, then perhaps a class and these words:
//
//	+norec          without RD, which is set otherwise
//	+ad +cd +z      with that bit of the header
//	+edns[=SIZE]    with an OPT record, of SIZE 1232 unless given
//	+do             with an OPT record and DO
//	+version=N      with an OPT record of that version
//	+option=N:HEX   with an OPT record and that option
//	+opcode=N       another opcode than QUERY
//	+udp, +tcp      over that alone
//
// Or it is a whole packet in hexadecimal digits, spaces where you like:
//
//	? hex 0004 0100 0001 0000 0000 0000 00 0001 0001
//
// The line below is the response code and the flags that the reply must have,
// no more and no less, but for those that every reply has: qr, rd if the query
// had it. The words are aa tc ra ad cd z, and of the OPT record edns=SIZE, do,
// version=N, option=N. "silence" alone means that there is no reply.
//
// Then come the records, in the form of zone files with every field written
// out; ";authority" and ";additional" begin those sections. The order within a
// section is the server's business, except that the CNAMEs with which an answer
// begins stand first, in this order. Names are compared in their spelling. A
// field that is * may be anything; a line that is ... stands for any number of
// further records in that section. Lines that begin with # are comments.
//
// A script goes on in steps: "-- apply 2 --" has objects that are new or take
// the place of those of the same name, "-- delete 2 --" objects that go (their
// kind and name are enough), and "-- questions 2 --" what is true then. Answers
// may take five seconds to become true.
//
// Some lines of the comment speak to the runner:
//
//	only: folder         not against a live API server; or the reverse: only: live
//	protocols: differ    answers over UDP and TCP need not be equal
//
// # How scripts are run
//
// Every question is asked over UDP and over TCP, of a server as it is and of one
// in which each handler of each chain makes its queries wait, and all that once
// for each source of objects. All replies must be as the script says and equal
// byte for byte behind the id. A UDP reply with tc is not compared.
package dnstest
