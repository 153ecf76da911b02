package daemon

import (
	"context"
	"io"
	"strings"
)

// LastLine is the last whole line that a pod wrote, "" if there is none.
func (d *Daemon) LastLine(ctx context.Context, namespace, pod string) string {
	backend, _ := d.present()
	if backend == nil {
		return ""
	}
	r, err := backend.Log(ctx, namespace, pod, "", 4096, false)
	if err != nil {
		return "" // it has not started, or is gone
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return ""
	}
	text, _, ok := cutLast(string(b), "\n")
	if !ok {
		return ""
	}
	_, line, ok := cutLast(text, "\n")
	if !ok {
		line = text
	}
	return strings.TrimSpace(line)
}

// cutLast slices s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
