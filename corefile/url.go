package corefile

import (
	"errors"
	"net/url"
	"strings"
)

var errBracket = errors.New("a bracket without an IPv6 address")

// ParseURL is [url.Parse], which accepts a host such as 10.0.0.1], and refuses it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && strings.ContainsAny(u.Hostname(), "[]") {
		err = &url.Error{Op: "parse", URL: text, Err: errBracket}
	}
	return u, err
}

// Unbracketed returns the IPv6 address in [ADDRESS] without its brackets, and other text as it is.
func Unbracketed(text string) string {
	bare, ok := strings.CutPrefix(text, "[")
	if bare, closed := strings.CutSuffix(bare, "]"); ok && closed {
		return bare
	}
	return text
}
