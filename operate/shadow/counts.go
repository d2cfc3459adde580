package shadow

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

// Text describes the packets that are not used, with the reasons.
func (s Skipped) Text() string {
	switch s {
	case SkippedCut:
		return "packets that are malformed or cut short (tcpdump -s 0 captures whole packets)"
	case SkippedFragment:
		return "IP fragments of packets that could not be put together"
	case SkippedProtocol:
		return "packets that are neither UDP nor TCP over IP"
	case SkippedLink:
		return "packets of an interface whose link type is not supported"
	case SkippedAddress:
		return "packets from and to other addresses or ports (--to, --port)"
	case SkippedDirection:
		return "responses to the server or queries from it"
	case SkippedStream:
		return "TCP segments after a gap, or of connections whose beginning is not in the capture"
	case SkippedLarge:
		return "dnstap messages that are too large"
	case SkippedMalformed:
		return "malformed dnstap messages"
	case SkippedKind:
		return "dnstap messages about queries that the server sent"
	case SkippedNoPacket:
		return "dnstap messages without the DNS message (CoreDNS and Seamark have the option full)"
	case SkippedShort:
		return "messages shorter than a header"
	case SkippedOpcode:
		return "queries with another opcode than QUERY"
	case SkippedTransfer:
		return "zone transfers"
	case SkippedQuery:
		return "malformed queries"
	case SkippedResponse:
		return "malformed responses"
	case SkippedUnserved:
		return "queries for names outside the zones of the cluster, which a folder has no answer for (--conf with forward has)"
	case SkippedOverload:
		return "queries over the rate (--rate)"
	case SkippedInterrupted:
		return "queries that were not finished at the end"
	}
	return string(s)
}

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
