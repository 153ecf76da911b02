package status

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestTail(t *testing.T) {
	var long strings.Builder
	for i := range 200 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	got := Tail([]byte(long.String()))
	assert.True(t, strings.HasPrefix(got, "line 150\n") && strings.HasSuffix(got, "line 199\n"), got)

	wide := strings.Repeat(strings.Repeat("é", 2000)+"\n", 10)
	assert.LessOrEqual(t, len(Tail([]byte(wide))), tailBytes)
	assert.Len(t, strings.Split(strings.TrimSpace(Tail([]byte(wide))), "\n"), 4, "whole lines")
	one := Tail([]byte(strings.Repeat("é", 20000)))
	assert.True(t, utf8.ValidString(one) && len(one) <= tailBytes && len(one) > tailBytes-4)

	for in, want := range map[string]string{
		"":                                 "",
		"\n\n":                             "",
		"10%\r50%\r100%\ndone":             "100%\ndone\n",
		"a\r\nb\r\n":                       "a\nb\n",
		"\x1b[31mred\x1b[0m \x1b]0;t\x07x": "red x\n",
		"bad \xff\xfe bytes\x00":           "bad � bytes\n",
		"\u202eright to left":              "right to left\n",
		"token=abcdef\n":                   "token=***\n",
		"a\n\n\nb\n":                       "a\n\n\nb\n",
		"a\r\r\n\r50%\r":                   "a\n50%\n",
		"\x1b[2K\x1b[1A 3/9 [=>  ]\b\b\n":  " 3/9 [=>  ]\n",
	} {
		assert.Equal(t, want, Tail([]byte(in)), "%q", in)
	}
}

// The end of any log is text within the bounds, and its own end.
func TestTailOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"\x00", "\xff", "\r", "\n", "\r\n", "\x1b[1m", "é", "\u202e", strings.Repeat("x", 7000), strings.Repeat("line\n", 40), "token=", "-----BEGIN PRIVATE KEY-----"})
		log := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "log"), "")
		got := Tail([]byte(log))
		if !utf8.ValidString(got) || len(got) > tailBytes || strings.Count(got, "\n") > tailLines || strings.ContainsAny(got, "\r\x00\x1b\u202e") {
			t.Fatalf("%q", got)
		}
		if got != "" && !strings.HasSuffix(got, "\n") {
			t.Fatalf("%q has no end", got)
		}
		if again := Tail([]byte(got)); again != got {
			t.Fatalf("%q becomes %q", got, again)
		}
	})
}
