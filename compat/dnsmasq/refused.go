package dnsmasq

// A refusal is an option of dnsmasq that is refused.
type refusal struct {
	name, short string
	arg         arity
	why         string
}

func refusals() []refusal {
	const (
		noDHCP    = "Seamark has no DHCP server: run one separately"
		noTFTP    = "Seamark has no TFTP server: run one separately"
		noBus     = "a pod has no message bus: use the ConfigMap, whose changes are served"
		noSets    = "the kernel's address sets and connection marks are not used"
		noAuth    = "serve authoritative zones with the directive file of a Corefile"
		noDnssec  = "answers are not validated: use an upstream that validates, whose AD bit is passed on"
		noClient  = "client addresses are not sent to upstreams"
		noStrip   = "the directive forward decides which EDNS options are passed on"
		noChange  = "addresses in answers are not filtered or changed: use the directives rewrite and template of a Corefile"
		noWin     = "queries of old Windows versions are not filtered: use the directive acl of a Corefile"
		noMade    = "names are not generated from interfaces and ranges: use the directive template of a Corefile"
		noMx      = "MX records are not generated from hosts: set each with --mx-host"
		noFiles   = "put its lines into a file of --conf-file, or upstreams that change into the ConfigMap"
		noScript  = "no programs are run: write its output into a file of --conf-file"
		noService = "restrict clients with a network policy, or with the directive acl of a Corefile"
		noDump    = "packets are not written to a file: use tcpdump"
	)
	return []refusal{
		{"dhcp-range", "F", must, noDHCP},
		{"dhcp-host", "G", must, noDHCP},
		{"dhcp-hostsfile", "", must, noDHCP},
		{"dhcp-optsfile", "", must, noDHCP},
		{"dhcp-hostsdir", "", must, noDHCP},
		{"dhcp-optsdir", "", must, noDHCP},
		{"tag-if", "", must, noDHCP},
		{"dhcp-userclass", "j", must, noDHCP},
		{"dhcp-circuitid", "", must, noDHCP},
		{"dhcp-remoteid", "", must, noDHCP},
		{"dhcp-subscrid", "", must, noDHCP},
		{"dhcp-pxe-vendor", "", must, noDHCP},
		{"dhcp-ignore", "J", must, noDHCP},
		{"dhcp-leasefile", "l", must, noDHCP},
		{"dhcp-boot", "M", must, noDHCP},
		{"dhcp-option", "O", must, noDHCP},
		{"dhcp-option-force", "", must, noDHCP},
		{"dhcp-vendorclass", "U", must, noDHCP},
		{"dhcp-lease-max", "X", must, noDHCP},
		{"dhcp-mac", "4", must, noDHCP},
		{"bridge-interface", "", must, noDHCP},
		{"shared-network", "", must, noDHCP},
		{"dhcp-script", "6", must, noDHCP},
		{"dhcp-luascript", "", must, noDHCP},
		{"dhcp-scriptuser", "", must, noDHCP},
		{"dhcp-match", "", must, noDHCP},
		{"dhcp-name-match", "", must, noDHCP},
		{"pxe-prompt", "", must, noDHCP},
		{"pxe-service", "", must, noDHCP},
		{"dhcp-relay", "", must, noDHCP},
		{"dhcp-duid", "", must, noDHCP},
		{"ra-param", "", must, noDHCP},
		{"dhcp-ttl", "", must, noDHCP},
		{"dhcp-reply-delay", "", must, noDHCP},
		{"no-dhcp-interface", "2", must, noDHCP},
		{"no-dhcpv6-interface", "", must, noDHCP},
		{"no-dhcpv4-interface", "", must, noDHCP},
		{"dhcp-authoritative", "K", none, noDHCP},
		{"read-ethers", "Z", none, noDHCP},
		{"no-ping", "5", none, noDHCP},
		{"script-arp", "", none, noDHCP},
		{"leasefile-ro", "9", none, noDHCP},
		{"dhcp-no-override", "", none, noDHCP},
		{"log-dhcp", "", none, noDHCP},
		{"dhcp-fqdn", "", none, noDHCP},
		{"dhcp-sequential-ip", "", none, noDHCP},
		{"dhcp-ignore-clid", "", none, noDHCP},
		{"dhcp-client-update", "", none, noDHCP},
		{"enable-ra", "", none, noDHCP},
		{"quiet-dhcp", "", none, noDHCP},
		{"quiet-dhcp6", "", none, noDHCP},
		{"quiet-ra", "", none, noDHCP},
		{"dhcp-rapid-commit", "", none, noDHCP},
		{"script-on-renewal", "", none, noDHCP},
		{"dhcp-broadcast", "", may, noDHCP},
		{"bootp-dynamic", "3", may, noDHCP},
		{"dhcp-ignore-names", "", may, noDHCP},
		{"dhcp-generate-names", "", may, noDHCP},
		{"dhcp-alternate-port", "", may, noDHCP},
		{"dhcp-proxy", "", may, noDHCP},
		{"enable-tftp", "", may, noTFTP},
		{"tftp-root", "", must, noTFTP},
		{"tftp-unique-root", "", may, noTFTP},
		{"tftp-secure", "", none, noTFTP},
		{"tftp-no-fail", "", none, noTFTP},
		{"tftp-max", "", must, noTFTP},
		{"tftp-mtu", "", must, noTFTP},
		{"tftp-no-blocksize", "", none, noTFTP},
		{"tftp-lowercase", "", none, noTFTP},
		{"tftp-port-range", "", must, noTFTP},
		{"tftp-single-port", "", none, noTFTP},
		{"quiet-tftp", "", none, noTFTP},
		{"enable-dbus", "1", may, noBus},
		{"enable-ubus", "", may, noBus},
		{"ipset", "", must, noSets},
		{"nftset", "", must, noSets},
		{"conntrack", "", none, noSets},
		{"connmark-allowlist-enable", "", may, noSets},
		{"connmark-allowlist", "", must, noSets},
		{"auth-server", "", must, noAuth},
		{"auth-zone", "", must, noAuth},
		{"auth-ttl", "", must, noAuth},
		{"auth-soa", "", must, noAuth},
		{"auth-sec-servers", "", must, noAuth},
		{"auth-peer", "", must, noAuth},
		{"dnssec", "", none, noDnssec},
		{"trust-anchor", "", must, noDnssec},
		{"dnssec-debug", "", none, noDnssec},
		{"dnssec-check-unsigned", "", may, noDnssec},
		{"dnssec-no-timecheck", "", none, noDnssec},
		{"dnssec-timestamp", "", must, noDnssec},
		{"dnssec-limits", "", must, noDnssec},
		{"add-mac", "", may, noClient},
		{"add-subnet", "", may, noClient},
		{"add-cpe-id", "", must, noClient},
		{"umbrella", "", may, noClient},
		{"strip-mac", "", none, noStrip},
		{"strip-subnet", "", none, noStrip},
		{"alias", "V", must, noChange},
		{"bogus-nxdomain", "B", must, noChange},
		{"ignore-address", "", must, noChange},
		{"filterwin2k", "f", none, noWin},
		{"interface-name", "", must, noMade},
		{"dynamic-host", "", must, noMade},
		{"synth-domain", "", must, noMade},
		{"selfmx", "e", none, noMx},
		{"localmx", "L", none, noMx},
		{"servers-file", "", must, noFiles},
		{"conf-script", "", must, noScript},
		{"local-service", "", may, noService},
		{"dumpfile", "", must, noDump},
		{"dumpmask", "", must, noDump},
	}
}
