package manifest

import (
	"bytes"
	"unicode/utf8"
)

// scan looks at the raw bytes of a file. It says whether a parser may see them.
func (p *parser) scan(data []byte) bool {
	switch {
	case len(data) > MaxBytes:
		p.add(0, 0, "", "the file has %d bytes; %d are the most that is read", len(data), MaxBytes)
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		p.add(1, 1, "", "the file is UTF-16; save it as UTF-8")
	case bytes.HasPrefix(data, []byte("\ufeff")):
		p.add(1, 1, "", "the file begins with a byte order mark; save it as UTF-8 without one")
	default:
		p.scanLines(data)
	}
	return len(p.problems) == 0
}

// scanLines finds bytes that are no text, and what a merge left behind.
func (p *parser) scanLines(data []byte) {
	for i, l := range bytes.Split(data, []byte("\n")) {
		line := i + 1
		if at := notText(bytes.TrimSuffix(l, []byte("\r"))); at >= 0 {
			what := "a control character (0x%02x)"
			switch {
			case l[at] >= utf8.RuneSelf:
				what = "a byte that is not UTF-8 (0x%02x)"
			case l[at] == 0:
				what = "a NUL byte (0x%02x): the file is binary, or UTF-16"
			}
			p.add(line, at+1, "", what, l[at])
			return // the rest of such a file is seldom better
		}
		for _, marker := range []string{"<<<<<<< ", ">>>>>>> ", "||||||| "} {
			if bytes.HasPrefix(l, []byte(marker)) {
				p.add(line, 1, "", "%q was left behind by a merge conflict: choose one side and remove the markers", marker[:7])
			}
		}
	}
}

// notText is the index of the first byte of a line that no YAML file may have, or -1.
func notText(line []byte) int {
	for i := 0; i < len(line); {
		b := line[i]
		if b < utf8.RuneSelf {
			if (b < 0x20 && b != '\t') || b == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(line[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
