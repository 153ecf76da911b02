package repo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is a mistake in a file of the watched repository, or with Warning set
// something in it that is accepted but should be looked at.
type Error struct {
	File    string `json:"file,omitempty"` // slash-separated, from the repository's root
	Line    int    `json:"line,omitempty"` // from 1; 0 is unknown
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"` // path of the field: spec.roles[0].name
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty"`
}

// Bounds of one error's text: what it quotes is a stranger's.
const (
	maxErrorFile    = 1024
	maxErrorField   = 300
	maxErrorMessage = 2000
)

// Error is file:line:column: field: message, without the parts that are
// unknown: one line, of bounded length, that no terminal takes for a command.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(plain(e.File, maxErrorFile))
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
			if e.Column > 0 {
				fmt.Fprintf(&b, ":%d", e.Column)
			}
		}
		b.WriteString(": ")
	}
	if e.Warning {
		b.WriteString("warning: ")
	}
	if e.Field != "" {
		b.WriteString(plain(e.Field, maxErrorField))
		b.WriteString(": ")
	}
	b.WriteString(plain(e.Message, maxErrorMessage))
	return b.String()
}

// plain escapes what cannot be printed, and cuts what is too long.
func plain(s string, most int) string {
	var b strings.Builder
	for _, r := range s { // bytes that are no UTF-8 become U+FFFD
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// SortErrors puts errors into the order of files and lines, and drops repeats.
func SortErrors(errs []*Error) []*Error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(errs, func(a, b *Error) bool { return *a == *b })
}

// Split parts errors from warnings.
func Split(all []*Error) (errs, warnings []*Error) {
	for _, e := range all {
		if e.Warning {
			warnings = append(warnings, e)
		} else {
			errs = append(errs, e)
		}
	}
	return errs, warnings
}
