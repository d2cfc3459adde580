package shadow

import "cmp"

// Skipped is the reason why a packet, a message or a query is not used, as in a report.
type Skipped string

// The reasons.
const (
	SkippedCut       Skipped = "cut_short"
	SkippedFragment  Skipped = "fragment"
	SkippedProtocol  Skipped = "other_protocol"
	SkippedLink      Skipped = "link_type"
	SkippedAddress   Skipped = "other_address"
	SkippedDirection Skipped = "wrong_direction"
	SkippedStream    Skipped = "tcp_incomplete"
	SkippedLarge     Skipped = "dnstap_large"
	SkippedMalformed Skipped = "dnstap_malformed"
	SkippedKind      Skipped = "dnstap_other_type"
	SkippedNoPacket  Skipped = "dnstap_no_message"
	SkippedShort     Skipped = "short_message"

	// Of queries with a response.
	SkippedOpcode      Skipped = "opcode"
	SkippedTransfer    Skipped = "transfer"
	SkippedQuery       Skipped = "malformed_query"
	SkippedResponse    Skipped = "malformed_response"
	SkippedUnserved    Skipped = "no_zone"
	SkippedOverload    Skipped = "over_rate"
	SkippedInterrupted Skipped = "interrupted"
)

// texts are the results of Text.
var texts = map[Skipped]string{
	SkippedCut:       "packets that are malformed or cut short (tcpdump -s 0 captures whole packets)",
	SkippedFragment:  "IP fragments of packets that could not be put together",
	SkippedProtocol:  "packets that are neither UDP nor TCP over IP",
	SkippedLink:      "packets of an interface whose link type is not supported",
	SkippedAddress:   "packets from and to other addresses or ports (--to, --port)",
	SkippedDirection: "responses to the server or queries from it",
	SkippedStream:    "TCP segments after a gap, or of connections whose beginning is not in the capture",
	SkippedLarge:     "dnstap messages that are too large",
	SkippedMalformed: "malformed dnstap messages",
	SkippedKind:      "dnstap messages about queries that the server sent",
	SkippedNoPacket:  "dnstap messages without the DNS message (CoreDNS and Seamark have the option full)",
	SkippedShort:     "messages shorter than a header",
	SkippedOpcode:    "queries with another opcode than QUERY",
	SkippedTransfer:  "zone transfers",
	SkippedQuery:     "malformed queries",
	SkippedResponse:  "malformed responses",
	SkippedUnserved: "queries for names outside the zones of the cluster, which a folder has no answer for" +
		" (--conf with forward has)",
	SkippedOverload:    "queries over the rate (--rate)",
	SkippedInterrupted: "queries that were not finished at the end",
}

// Text describes the packets that are not used, with the reasons.
func (s Skipped) Text() string { return cmp.Or(texts[s], string(s)) }

// Counts are the numbers of what was captured.
type Counts struct {
	Packets       int             `json:"packets"`    // of the capture, or messages of dnstap
	Queries       int             `json:"queries"`    // with repeated ones
	Repeated      int             `json:"repeated"`   // queries that the client sent again before the response
	Responses     int             `json:"responses"`  // with those without a query
	Answered      int             `json:"answered"`   // queries with a response
	Unanswered    int             `json:"unanswered"` // queries without a response
	Unasked       int             `json:"unasked"`    // responses without a query
	QueryBytes    uint64          `json:"query_bytes"`
	ResponseBytes uint64          `json:"response_bytes"`
	Skipped       map[Skipped]int `json:"skipped"`
}
