package kubernetes

// A result is the outcome of a lookup and its reason: what the name is, or what is missing.
// ExplainDNS puts the reason into words. The results are in the order that reply relies on.
type result uint8

// The name does not exist.
const (
	noName         result = iota // the zone has only names below svc and pod
	noNamespace                  // with this name, or an option hides it
	noService                    // with this name, or it has no name
	noEndpoint                   // with this name
	noPort                       // with this name, or the labels are not those of a port
	noTopologyZone               // with ready endpoints
	belowAlias                   // an ExternalName has no names below it
	noPods                       // pods disabled
	noPod                        // of the namespace with this address
	noPodAddress                 // the label is none
	belowPod                     // a Pod has no names below it
	noReverseName                // the name is none of an address
	noPrimary                    // zone with names that a PTR record could contain
	noAddress                    // of a Service or an endpoint
	noMatch                      // for a name with wildcards
)

// emptyNonTerminal is a reverse name that exists only because of names below it.
const emptyNonTerminal = noMatch + 1

// The name exists; its records are written, none if it lacks the type.
const (
	answered        = emptyNonTerminal + 1 + iota // a name at or below a Service's
	isZone                                        // the zone's own name
	isServer                                      // the name server of kubernetes, or the label above it
	isNameServer                                  // the name server of k8s_external
	aboveNameServer                               // the label above it
	isVersion                                     // dns-version
	isServices                                    // svc
	isPods                                        // pod
	isNamespace                                   // a namespace
	isTopologyZone                                // a topology zone of a Service
	isPod                                         // a Pod of the namespace has the address
	isInsecurePod                                 // pods insecure
	isAddress                                     // a Service or an endpoint has the address
)

// There is no answer, or not yet.
const (
	notListed          = isAddress + 1 + iota // objects that decide the answer have not been listed yet
	endpointsElsewhere                        // only servers with endpoints know the answer: the next handler answers
	podElsewhere                              // the Pod may be on another node: the next handler answers
	addressElsewhere                          // an endpoint may have the address: the next handler answers
	refused                                   // a zone transfer
	parked                                    // the CNAME is written; its target's answer has to be awaited
)
