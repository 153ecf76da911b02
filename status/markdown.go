package status

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apart is a space of no width. It parts what forges would make a link or a
// mention of: they look for those in the finished page too, where a backslash
// of the source is long gone.
const apart = "&#8203;"

// escape makes text that a job's author wrote plain in Markdown and HTML: it
// can be no link, mention, heading, list, table cell or comment.
func escape(text string) string {
	text = oneLine(text)
	var b strings.Builder
	for i, r := range text {
		if links(text, i) {
			b.WriteString(apart)
		}
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_[]#|~$", r), i == 0 && strings.ContainsRune("-+=", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine is text without ends of lines and without what cannot be seen.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.In(r, unicode.Zl, unicode.Zp):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n")))
}

// links says whether forges would make a link of what is before index i of a
// text together with what follows: https://…, www.…, mailto:…, @mnist, #12, !12, GH-12.
func links(text string, i int) bool {
	before, after := text[:i], text[i:]
	ends := func(s string) bool { return len(before) >= len(s) && strings.EqualFold(before[len(before)-len(s):], s) }
	switch c := after[0]; {
	case c == '/':
		return ends(":") && strings.HasPrefix(after, "//")
	case c == '.':
		return ends("www")
	case ends("mailto:"), ends("xmpp:"), ends("@"):
		return c != ' '
	case c >= '0' && c <= '9':
		return ends("#") || ends("!") || ends("GH-")
	}
	return false
}

// plainName keeps of a name what can be in a code span or a diagram: names are
// DNS labels and revisions are hashes, and nothing else gets through.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, s)
}

// link is a link to a file, from the directory of the file that it is in.
func link(text, file string) string {
	parts := strings.Split(file, "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(parts[i]), ":", "%3A")
	}
	return "[" + escape(text) + "](" + strings.Join(parts, "/") + ")"
}

// count is a number with what it counts: 1 task, 2 tasks.
func count[N int | int32](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// fenced is text in a block that it cannot end.
func fenced(text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "text\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

// clock is a time as it is shown everywhere, in UTC.
func clock(t metav1.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func optional(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

// took is the time between two times.
func took(from metav1.Time, to *metav1.Time) string {
	if to == nil {
		return ""
	}
	return short(to.Sub(from.Time))
}

// short is a duration without its zeros: 1h5m, 12m, 3s.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case d >= time.Hour && m == 0:
		return fmt.Sprintf("%dh", h)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", h, m)
	case d >= time.Minute && s == 0:
		return fmt.Sprintf("%dm", m)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}

// hours of GPU seconds, with two digits.
func hours(seconds int64) string { return fmt.Sprintf("%.2f", float64(seconds)/3600) }
