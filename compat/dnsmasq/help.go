package dnsmasq

import (
	"fmt"
	"strings"
)

// Help returns the list of supported, ignored and refused options.
func Help() string {
	var served, ignored, refused strings.Builder
	for _, o := range table() {
		name := "--" + o.name
		switch o.arg {
		case must:
			name += "=VALUE"
		case may:
			name += "[=VALUE]"
		}
		if o.short != "" {
			name = "-" + o.short + ", " + name
		} else {
			name = "    " + name
		}
		switch {
		case o.why != "":
			fmt.Fprintf(&refused, "  %-38s %s\n", name, o.why)
		case o.lost != "":
			fmt.Fprintf(&ignored, "  %-38s %s\n", name, o.lost)
		default:
			fmt.Fprintf(&served, "  %s\n", name)
		}
	}
	return "Supported options of dnsmasq:\n" + served.String() +
		"\nAccepted, but without effect or implemented differently:\n" + ignored.String() +
		"\nRefused:\n" + refused.String()
}
