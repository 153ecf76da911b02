package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadsStayValidWhileWhatWasReadDoes(t *testing.T) {
	base := map[string]string{"jobs/a.yaml": "1", "jobs/b.yaml": "2", "jobs/sub/x": "x", "other/c": "3"}
	look := map[string]func(v *View){
		"read":      func(v *View) { _, _ = v.ReadFile("jobs/a.yaml") },
		"open":      func(v *View) { _, _ = v.Open("jobs/a.yaml") },
		"stat file": func(v *View) { _, _ = v.Stat("jobs/a.yaml") },
		"stat dir":  func(v *View) { _, _ = v.Stat("jobs") },
		"list":      func(v *View) { _, _ = v.ReadDir("jobs") },
		"miss":      func(v *View) { _, _ = v.ReadFile("jobs/z.yaml") },
		"miss deep": func(v *View) { _, _ = v.Stat("jobs/a.yaml/kustomization.yaml") },
		"read dir":  func(v *View) { _, _ = v.ReadFile("jobs") },
		"list file": func(v *View) { _, _ = v.ReadDir("jobs/a.yaml") },
		"read root": func(v *View) { _, _ = v.ReadDir(".") },
	}
	tests := []struct {
		change string
		edit   map[string]string // "" deletes
		breaks []string
	}{
		{"nothing", nil, nil},
		{"elsewhere", map[string]string{"other/c": "9", "other/d": "1"}, nil},
		{"deeper", map[string]string{"jobs/sub/y": "1"}, nil},
		{"content", map[string]string{"jobs/a.yaml": "9"}, []string{"read", "open"}},
		{"sibling content", map[string]string{"jobs/b.yaml": "9"}, nil},
		{"new sibling", map[string]string{"jobs/z.yaml": "9"}, []string{"list", "miss"}},
		{"removed", map[string]string{"jobs/a.yaml": ""}, []string{"read", "open", "stat file", "list", "list file"}},
		{"file to dir", map[string]string{"jobs/a.yaml": "", "jobs/a.yaml/kustomization.yaml": "1"},
			[]string{"read", "open", "stat file", "list", "miss deep", "list file"}},
		{"all gone", map[string]string{"jobs/a.yaml": "", "jobs/b.yaml": "", "jobs/sub/x": ""},
			[]string{"read", "open", "stat file", "stat dir", "list", "read dir", "list file", "read root"}},
	}
	b := newBare(t)
	b.commit("main", base)
	m := mirrorOf(t, b.dir)
	before := fetch(t, m, "main")
	for _, tt := range tests {
		t.Run(tt.change, func(t *testing.T) {
			files := maps.Clone(base)
			for k, v := range tt.edit {
				if files[k] = v; v == "" {
					delete(files, k)
				}
			}
			b.commitTree("next", b.tree(files))
			after := fetch(t, m, "next")
			for name, fn := range look {
				v := before.View(t.Context(), Limits{})
				fn(v)
				require.Len(t, v.Reads(), 1, name)
				assert.True(t, before.Unchanged(v.Reads()), name)
				assert.Equal(t, !contains(tt.breaks, name), after.Unchanged(v.Reads()), name)
			}
		})
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestReadsAddUp(t *testing.T) {
	b := newBare(t)
	b.commit("main", map[string]string{"a": "1"})
	snap := fetch(t, mirrorOf(t, b.dir), "main")
	v := snap.View(t.Context(), Limits{})
	_, _ = v.ReadFile("a")
	_, _ = v.Stat("a") // a later look takes nothing away
	_, _ = v.Stat("gone")
	assert.Equal(t, Reads{"a": {Kind: "file", Hash: hash(b.blob("1"))}, "gone": {}}, v.Reads())
	_, err := v.Stat("../a")
	require.ErrorIs(t, err, fs.ErrInvalid)
	assert.Len(t, v.Reads(), 2, "what is no path is not recorded")
}

func TestViewLimits(t *testing.T) {
	b := newBare(t)
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprint(i)] = "0123456789"
	}
	b.commit("main", files)
	snap := fetch(t, mirrorOf(t, b.dir), "main")
	count := func(v *View) (n int, err error) {
		for i := range 10 {
			if _, err = v.ReadFile(fmt.Sprint(i)); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	n, err := count(snap.View(t.Context(), Limits{Reads: 4}))
	assert.Equal(t, 4, n)
	require.ErrorIs(t, err, ErrBudget)
	n, err = count(snap.View(t.Context(), Limits{Bytes: 25}))
	assert.Equal(t, 2, n)
	require.ErrorIs(t, err, ErrBudget)
	why := errors.New("deadline of this unit")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	n, err = count(snap.View(ctx, Limits{}))
	assert.Zero(t, n)
	require.ErrorIs(t, err, why)
	n, err = count(snap.View(t.Context(), Limits{}))
	assert.Equal(t, 10, n)
	require.NoError(t, err)
}

func TestChanged(t *testing.T) {
	b := newBare(t)
	b.commitTree("a", b.tree(map[string]string{"same/x": "same", "mod": "1", "gone/deep/x": "1", "swap": "1", "turn/x": "1"}))
	exec := entry{"mod", modeExec, hash(b.blob("1"))}
	rest, same := b.tree(map[string]string{"x": "1"}), b.tree(map[string]string{"x": "same"})
	b.commitTree("b", b.rawTree(exec, entry{"new", modeFile, hash(b.blob("2"))}, entry{"same", modeDir, hash(same)},
		entry{"swap", modeDir, hash(rest)}, entry{"turn", modeSymlink, hash(b.blob("x"))}))
	m := mirrorOf(t, b.dir)
	x, y := fetch(t, m, "a"), fetch(t, m, "b")
	got, err := Changed(x, y)
	require.NoError(t, err)
	assert.Equal(t, []Change{{"gone/deep/x", Removed}, {"mod", Modified}, {"new", Added},
		{"swap", Removed}, {"swap/x", Added}, {"turn", Added}, {"turn/x", Removed}}, got)
	assert.NotContains(t, m.current().dirs, hash(same), "what is the same is not looked into")
	got, err = Changed(nil, x)
	require.NoError(t, err)
	assert.Len(t, got, 5)
	got, err = Changed(x, x)
	require.NoError(t, err)
	assert.Empty(t, got)
}

// Twelve trees of a few hundred bytes unfold into 10^12 files.
func TestChangedEndsOnATreeBomb(t *testing.T) {
	b := newBare(t)
	at := entry{mode: modeFile, hash: hash(b.blob("boom"))}
	for range 12 {
		var level []entry
		for i := range 10 {
			level = append(level, entry{fmt.Sprintf("d%d", i), at.mode, at.hash})
		}
		at = entry{mode: modeDir, hash: hash(b.rawTree(level...))}
	}
	b.commitTree("main", at.hash.String())
	m := mirrorOf(t, b.dir)
	snap := fetch(t, m, "main")
	_, err := Changed(nil, snap)
	require.ErrorContains(t, err, "more than 200000 paths differ")
}
