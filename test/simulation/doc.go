// Package simulation tests the server in simulated worlds. It contains tests only.
//
// A world is made from a seed and lives under the virtual clock of testing/synctest. It has a cluster
// whose objects change, an API server that speaks HTTP over connections in memory to the real
// cluster/apiserver, upstreams to which the real forward sends its packets, a hosts file and a zone file
// that are replaced, written step by step, removed and spoiled, and a server that is started from a
// Corefile and reloads other Corefiles. At times drawn from the seed the API server and the upstreams
// misbehave in every way that their protocols permit: they are down, silent, slow, stale, or send
// errors, truncated responses and garbage. Upstreams also send replies that are not perfect but lead to
// an answer, and the server runs out of descriptors. It is restarted, too, with its snapshot or without,
// or crashes. Clients query all the while, and an oracle checks each answer against the history of the
// cluster, of the upstreams' zones and of the two files. It computes naively the states that the server
// may know at that time and shares no code with the server. At the end the faults cease, and five
// seconds later each name must have exactly the newest answer.
//
// In a third of the worlds clients use TCP, TLS, HTTPS, QUIC and HTTP/3, too, by the code of packages transport
// and streams over connections and packets in memory. They repeat a query only if the server was restarted, or
// closed an idle connection.
//
// In another third a second server copies the zones of the first, over a network that loses, delays and
// repeats packets and breaks connections, from a primary that refuses, stops, or sends wrong serial
// numbers, differences that do not fit, and too much. An observer transfers each version of the primary
// over another network. Each copy must be one of these versions and never an older one, and equal to
// the zone within the time that NOTIFY, or else REFRESH, promises.
//
// In every tenth world clients read the status pages, or do not read them, send half a request, or scrape
// all the time. The pages must be answered within two seconds, agree with the lists that the server has
// received, and have counters that only grow.
//
// In every fourth world the disk with the snapshots and the copies is taken away and brought back: the
// servers go on, a restart meanwhile is without them, and what could not be written is written later.
//
// In every fourth world the server has a memory of 64 MB, parts of which are taken and given back: for
// cached answers, for streams and the replies to them, and for records of queries. Clients of streams may
// be refused meanwhile, all others have to be answered as before, and after the end no part is in use.
//
// In every third world new processes replace the server, with its Corefile or another one: the old process
// passes what it knows by the code of packages server and handover, over a connection in memory, and both
// answer for a moment. One of them may die after each message, and one may be stopped for longer than the other
// waits: then it reads no packets of QUIC. Exactly one remains. No packet is lost, a new process answers only once it is ready unless the old one
// has died, serial numbers never go back, and a process that gives way writes no snapshot. TCP connections are
// not passed: they belong to the operating system (the tests of cmd make processes for them).
//
// The seed determines the objects, changes, faults, Corefiles and queries, with their
// times. It does not determine the order in which goroutines run at one instant, nor the
// random parts of client-go's and forward's retry delays, so a rare failure may need
// several runs of its seed.
package simulation
