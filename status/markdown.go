package status

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// escape makes text that a job's author wrote plain in Markdown and HTML: it
// can be no link, no heading, no table cell and no comment.
func escape(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_[]#|~$@", r), autolink(text, i):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// autolink says whether forges would make a link of the text around index i,
// were it not for a backslash there: of https://… and of www.…
func autolink(text string, i int) bool {
	return strings.HasPrefix(text[i:], "://") || text[i] == '.' && i >= 3 && strings.EqualFold(text[i-3:i], "www")
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

// clock is a time as it is shown everywhere.
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
