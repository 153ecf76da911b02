package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/trainyard/trainyard/"

// The folders that know nothing of each other.
var spokes = []string{"sync", "render", "runner", "status"}

// TestImportsFormAStar: the spokes import repo-layout alone, which imports none
// of ours; only cmd imports them all.
func TestImportsFormAStar(t *testing.T) {
	const format = `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	list := exec.Command("go", "list", "-f", format, "./...")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		from := folder(words[0])
		seen[from] = true
		for _, imported := range words[1:] {
			to := folder(imported)
			switch {
			case to == "" || to == from || to == "repo-layout":
			case from == "repo-layout" || slices.Contains(spokes, from):
				t.Errorf("%s imports %s", words[0], imported)
			case from == "examples" || from == "deploy":
				t.Errorf("%s imports %s", words[0], imported)
			}
		}
	}
	for _, f := range append(spokes, "repo-layout", "cmd") {
		assert.True(t, seen[f], "no package in %s", f)
	}
}

// folder is the top-level folder of one of our packages, "" for others.
func folder(importPath string) string {
	rest, ours := strings.CutPrefix(importPath, module)
	if !ours {
		return ""
	}
	top, _, _ := strings.Cut(rest, "/")
	return top
}

// source is a Go file of the project.
type source struct {
	name  string // slash-separated, from the top
	lines int
	file  *ast.File
	fset  *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) in(places []string) bool {
	return slices.ContainsFunc(places, func(p string) bool {
		return s.name == p || strings.HasSuffix(p, "/") && strings.HasPrefix(s.name, p)
	})
}

func (s source) imports(name string) bool {
	return slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+name+`"` })
}

// uses calls found for each pkg.Name in the file.
func (s source) uses(found func(pkg, name string, line int)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			// An identifier that is declared in the file is no package.
			if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil {
				found(id.Name, sel.Sel.Name, s.fset.Position(sel.Pos()).Line)
			}
		}
		return true
	})
}

func sources(t *testing.T) []source {
	var out []source
	fset := token.NewFileSet()
	walk(t, func(name string) {
		if path.Ext(name) != ".go" {
			return
		}
		text := read(t, name)
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		require.NoError(t, err)
		out = append(out, source{name: name, lines: strings.Count(text, "\n"), file: file, fset: fset})
	})
	require.NotEmpty(t, out)
	return out
}

// walk visits the project's files, without Git's own and what is built.
func walk(t *testing.T, visit func(name string)) {
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == ".git" || name == "bin"):
			return fs.SkipDir
		case e.Type().IsRegular():
			visit(name)
		}
		return nil
	}))
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(path.Join("..", name))
	require.NoError(t, err)
	return string(text)
}

// Files in which real work with the outside happens: they may ask the clock.
var clocks = []string{
	"cmd/", "runner/run.go", "runner/local/", "sync/", "examples/",
	"render/build.go", "render/filesystem.go", // the time that a unit may take
	"e2e/cluster/", "runner/simulation/mutate/",
	// What a server has been silent about for how long; decisions get times as values.
	"runner/kubernetes/",
}

// TestClock: what decides gets times as values.
func TestClock(t *testing.T) {
	for _, s := range sources(t) {
		s.uses(func(pkg, name string, line int) {
			switch {
			case pkg != "time":
			case s.test() && name == "Sleep":
				t.Errorf("%s:%d: a test sleeps; poll with a deadline, or use testing/synctest", s.name, line)
			case !s.test() && !s.in(clocks) && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, name):
				t.Errorf("%s:%d: time.%s outside of the files that may ask the clock", s.name, line, name)
			}
		})
	}
}

// Files of package runner that are its loop. All others decide.
var loopFiles = []string{"runner/announce.go", "runner/asked.go", "runner/backend.go", "runner/create.go", "runner/loop.go", "runner/publish.go", "runner/queue.go", "runner/reconcile.go", "runner/refusal.go", "runner/run.go", "runner/stranger.go"}

// TestDecideIsPure: no clock, no I/O, no goroutine, no chance.
func TestDecideIsPure(t *testing.T) {
	decides := 0
	for _, s := range sources(t) {
		if path.Dir(s.name) != "runner" || s.test() || s.in(loopFiles) {
			continue
		}
		decides++
		for _, banned := range []string{"context", "os", "io", "net", "net/http", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "log", "github.com/rs/zerolog"} {
			assert.False(t, s.imports(banned), "%s imports %s: it decides, and is pure", s.name, banned)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel where decisions are made", s.fset.Position(n.Pos()))
			}
			return true
		})
	}
	assert.Greater(t, decides, 5)
	for _, f := range loopFiles {
		_, err := os.Stat(path.Join("..", f))
		assert.NoError(t, err, "the list above names it")
	}
}

// TestProcess: only cmd ends the program, reads variables and takes signals. A
// shim is a process of its own.
func TestProcess(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.in([]string{"cmd/", "runner/local/shim.go", "render/manifest/manifesttest/", "e2e/cluster/", "runner/simulation/simulate/", "runner/simulation/mutate/"}) {
			continue
		}
		assert.False(t, s.imports("os/signal"), "%s takes signals", s.name)
		s.uses(func(pkg, name string, line int) {
			if pkg == "os" && slices.Contains([]string{"Exit", "Getenv", "LookupEnv"}, name) {
				t.Errorf("%s:%d: os.%s outside of cmd", s.name, line, name)
			}
		})
	}
}

// TestSizes: files of at most 500 lines, functions of at most 70.
func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		assert.LessOrEqual(t, s.lines, 500, "%s is too long", s.name)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			from, to := s.fset.Position(f.Pos()), s.fset.Position(f.End())
			if !s.test() {
				assert.LessOrEqual(t, to.Line-from.Line+1, 70, "%s: %s is too long", from, f.Name.Name)
				assert.False(t, f.Recv == nil && f.Name.Name == "init", "%s: work in init", from)
			}
		}
	}
}

// TestNames: a package is called after what it is.
func TestNames(t *testing.T) {
	for _, s := range sources(t) {
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		assert.NotContains(t, []string{"util", "utils", "common", "helpers", "types", "interfaces", "manager", "pkg", "sync", "errors"}, name, s.name)
	}
}

// TestTopLevel: the folders are the picture in the design, and no more.
func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		if e.Name()[0] != '.' && e.Name() != "bin" {
			got = append(got, e.Name())
		}
	}
	assert.ElementsMatch(t, []string{
		"cmd", "sync", "render", "runner", "status", "repo-layout", "deploy", "examples", "e2e", "docs",
		"go.mod", "go.sum", "Makefile", "README.md", "LICENSE",
	}, got)
}

// TestText: no file speaks of the machine it was written on, and nothing is
// left for later.
func TestText(t *testing.T) {
	machine := regexp.MustCompile(`(^|[^\w.])/(work|root|farm)/\w|\.\./` + `shared\b`)
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	walk(t, func(name string) {
		if name == "go.sum" || strings.Contains(name, "/testdata/fuzz/") {
			return
		}
		n := 0
		for line := range strings.Lines(read(t, name)) {
			n++
			at := fmt.Sprintf("%s:%d: %s", name, n, strings.TrimSpace(line))
			if name != ".ci/run" { // which knows where job files of other systems lie
				assert.False(t, machine.MatchString(line), "a path of a machine: %s", at)
			}
			assert.False(t, later.MatchString(line), "left for later: %s", at)
		}
	})
}

// TestMakefile: a target has at most five lines.
func TestMakefile(t *testing.T) {
	target, n := "", 0
	for line := range strings.Lines(read(t, "Makefile")) {
		if !strings.HasPrefix(line, "\t") {
			target, n = line, 0
			continue
		}
		n++
		assert.LessOrEqual(t, n, 5, "target %s", target)
	}
}
