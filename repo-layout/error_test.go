package repo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an error quotes is a stranger's: it stays one line of bounded length,
// and no terminal takes it for a command.
func TestErrorsArePlainText(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{File: "jobs/ü 中.yaml", Line: 3, Column: 1, Field: "spec.a", Message: `want "x"`}, `jobs/ü 中.yaml:3:1: spec.a: want "x"`},
		{Error{File: "jobs/a\nb.yaml", Line: 3, Message: "x\x1b[31my\r\tz"}, `jobs/a\nb.yaml:3: x\x1b[31my\r\tz`},
		{Error{File: "a.yaml", Message: "abc\u202edef\xff", Warning: true}, `a.yaml: warning: abc\u202edef` + "\ufffd"},
		{Error{Message: "no place"}, "no place"},
	} {
		require.Equal(t, c.want, c.err.Error())
	}
	long := (&Error{File: strings.Repeat("f", 1e6), Field: strings.Repeat("d", 1e6), Message: strings.Repeat("m", 1e6)}).Error()
	require.Less(t, len(long), 3500)
	require.Contains(t, long, "…")
}
