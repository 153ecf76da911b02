package status

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the end of a log that is kept in a record.
const (
	tailLines = 50
	tailBytes = 16 << 10
)

// Tail is the end of a log as it may be read by everybody who can read the
// repository: 50 lines or 16 KiB, whichever is less, whole lines if they are not
// longer than that, with what looks like a secret masked.
func Tail(log []byte) string {
	text := Mask(clean(string(log)))
	list := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(list) > tailLines {
		list = list[len(list)-tailLines:]
	}
	text = strings.Join(list, "\n")
	const most = tailBytes - len("\n") // the one that it ends with
	for len(text) > most {
		_, rest, more := strings.Cut(text, "\n")
		if !more {
			text = text[len(text)-most:]
			for len(text) > 0 && !utf8.RuneStart(text[0]) {
				text = text[1:]
			}
			break
		}
		text = rest
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}

var ansi = regexp.MustCompile(`\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])`)

// clean keeps what can be read: a progress bar's last state, no colours, no
// control characters, valid UTF-8.
func clean(text string) string {
	text = ansi.ReplaceAllString(strings.ToValidUTF8(text, "�"), "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	list := strings.Split(text, "\n")
	for i, line := range list {
		line = strings.TrimRight(line, "\r")
		if j := strings.LastIndexByte(line, '\r'); j >= 0 {
			line = line[j+1:]
		}
		list[i] = strings.Map(func(r rune) rune {
			if r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
				return r
			}
			return -1
		}, line)
	}
	return strings.Join(list, "\n")
}
