// Package redact hides secrets in what logs, status pages and errors show.
package redact

import (
	"errors"
	"net/url"
	"strings"
)

// Hidden stands for a secret.
const Hidden = "(hidden)"

// URL returns a URL, valid or not, without user, password and parameters. The scheme may be missing.
func URL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, ":@/") { // a password may have "://", too
		scheme, rest = "", text
	} else {
		scheme += "://"
	}

	rest, query, hasQuery := strings.Cut(rest, "?")
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		rest = Hidden + rest[at:]
	}
	if hasQuery {
		rest += "?" + Hidden
	}

	// The password of an invalid URL may have the question mark.
	if at < 0 && strings.Contains(query, "@") {
		rest = Hidden
	}
	return scheme + rest
}

// Error returns the cause of an error of packages net/url and net/http, whose text has the whole URL.
func Error(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
