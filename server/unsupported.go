package server

// unsupported lists the directives of CoreDNS 1.14 that Seamark does not have.
// They have an error message of their own.
const unsupported = `route53 azure clouddns nomad`
