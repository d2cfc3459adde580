package dnsmasq

import "strings"

// A refusal is a reason to refuse options.
type refusal struct{ reason, options string }

// refusals returns the options of dnsmasq that are refused, by reason. The letter of
// an option, if it has one, precedes its name and a comma. "=" after a name is a
// value, "[=]" a value that may be omitted.
func refusals() []refusal {
	return []refusal{
		{"Seamark has no DHCP server: run one separately",
			`F,dhcp-range= G,dhcp-host= dhcp-hostsfile= dhcp-optsfile= dhcp-hostsdir= dhcp-optsdir= tag-if=
			j,dhcp-userclass= dhcp-circuitid= dhcp-remoteid= dhcp-subscrid= dhcp-pxe-vendor= J,dhcp-ignore=
			l,dhcp-leasefile= M,dhcp-boot= O,dhcp-option= dhcp-option-force= U,dhcp-vendorclass=
			X,dhcp-lease-max= 4,dhcp-mac= bridge-interface= shared-network= 6,dhcp-script= dhcp-luascript=
			dhcp-scriptuser= dhcp-match= dhcp-name-match= pxe-prompt= pxe-service= dhcp-relay= dhcp-duid=
			ra-param= dhcp-ttl= dhcp-reply-delay= 2,no-dhcp-interface= no-dhcpv6-interface= no-dhcpv4-interface=
			K,dhcp-authoritative Z,read-ethers 5,no-ping script-arp 9,leasefile-ro dhcp-no-override log-dhcp
			dhcp-fqdn dhcp-sequential-ip dhcp-ignore-clid dhcp-client-update enable-ra quiet-dhcp quiet-dhcp6
			quiet-ra dhcp-rapid-commit script-on-renewal dhcp-broadcast[=] 3,bootp-dynamic[=]
			dhcp-ignore-names[=] dhcp-generate-names[=] dhcp-alternate-port[=] dhcp-proxy[=]`},
		{"Seamark has no TFTP server: run one separately",
			`enable-tftp[=] tftp-root= tftp-unique-root[=] tftp-secure tftp-no-fail tftp-max= tftp-mtu=
			tftp-no-blocksize tftp-lowercase tftp-port-range= tftp-single-port quiet-tftp`},

		{"a pod has no message bus: use the ConfigMap, whose changes are served", `1,enable-dbus[=] enable-ubus[=]`},
		{"the kernel's address sets of ipset and connection marks are not used",
			`ipset= conntrack connmark-allowlist-enable[=] connmark-allowlist=`},
		{"add addresses to sets of nftables with the directive nftset of a Corefile", `nftset=`},
		{"serve authoritative zones with the directive file of a Corefile",
			`auth-server= auth-zone= auth-ttl= auth-soa= auth-sec-servers= auth-peer=`},
		{"answers are not validated: use an upstream that validates, whose AD bit is passed on",
			`dnssec trust-anchor= dnssec-debug dnssec-check-unsigned[=] dnssec-no-timecheck dnssec-timestamp=
			dnssec-limits=`},
		{"client addresses are not sent to upstreams", `add-mac[=] add-subnet[=] add-cpe-id= umbrella[=]`},
		{"the directive forward decides which EDNS options are passed on", `strip-mac strip-subnet`},
		{"addresses in answers are not filtered or changed: use the directives rewrite and template of a Corefile",
			`V,alias= B,bogus-nxdomain= ignore-address=`},
		{"queries of old Windows versions are not filtered: use the directive acl of a Corefile", `f,filterwin2k`},
		{"names are not generated from interfaces and ranges: use the directive template of a Corefile",
			`interface-name= dynamic-host= synth-domain=`},
		{"MX records are not generated from hosts: set each with --mx-host", `e,selfmx L,localmx`},

		{"put its lines into a file of --conf-file, or upstreams that change into the ConfigMap", `servers-file=`},
		{"no programs are run: write its output into a file of --conf-file", `conf-script=`},
		{"restrict clients with a network policy, or with the directive acl of a Corefile", `local-service[=]`},
		{"packets are not written to a file: use tcpdump", `dumpfile= dumpmask=`},
	}
}

// refused returns the refused options.
func refused() (all []option) {
	for _, r := range refusals() {
		for word := range strings.FieldsSeq(r.options) {
			o := option{name: word, refusal: r.reason}
			if letter, name, ok := strings.Cut(word, ","); ok {
				o.short, o.name = letter, name
			}
			if name, ok := strings.CutSuffix(o.name, "[=]"); ok {
				o.name, o.arg = name, optional
			} else if name, ok := strings.CutSuffix(o.name, "="); ok {
				o.name, o.arg = name, required
			}
			all = append(all, o)
		}
	}
	return all
}
