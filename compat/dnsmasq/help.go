package dnsmasq

import (
	"fmt"
	"strings"
)

// Help returns the list of supported, ignored and refused options.
func Help() string {
	var served, ignored, refused strings.Builder
	for _, o := range new(reader).options() {
		name := "--" + o.name
		switch o.arg {
		case required:
			name += "=VALUE"
		case optional:
			name += "[=VALUE]"
		}
		if o.short != "" {
			name = "-" + o.short + ", " + name
		} else {
			name = "    " + name
		}

		switch {
		case o.refusal != "":
			fmt.Fprintf(&refused, "  %-38s %s\n", name, o.refusal)
		case o.note != "":
			fmt.Fprintf(&ignored, "  %-38s %s\n", name, o.note)
		default:
			fmt.Fprintf(&served, "  %s\n", name)
		}
	}
	return "Supported options of dnsmasq:\n" + served.String() +
		"\nAccepted, but without effect or implemented differently:\n" + ignored.String() +
		"\nRefused:\n" + refused.String()
}
