package status

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	markup "github.com/yuin/goldmark/renderer/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestHostileTextStaysText(t *testing.T) {
	for in, want := range map[string]string{
		"a | b":                       `a \| b`,
		"<script>alert(1)</script>":   "&lt;script&gt;alert(1)&lt;/script&gt;",
		"![x](https://evil)":          `!\[x\](https:&#8203;//evil)`,
		"see www.evil.example":        `see www&#8203;.evil.example`,
		"@mnist and #12, #a":          `@&#8203;mnist and \#&#8203;12, \#a`,
		"two\nlines\r\u202e":          "two lines",
		"`code` *b* _i_ ~s~ $m$":      "\\`code\\` \\*b\\* \\_i\\_ \\~s\\~ \\$m\\$",
		"<!-- trainyard:end prod -->": "&lt;!-- trainyard:end prod --&gt;",
		"jobs/a.yaml:3:4: no":         "jobs/a.yaml:3:4: no",
		"key: value, a:b, c/d//e":     "key: value, a:b, c/d//e",
		"joe@example.com!3 at 3 @ 4":  "joe@&#8203;example.com!&#8203;3 at 3 @ 4",
		"mailto:joe GH-12 www":        "mailto:&#8203;joe GH-&#8203;12 www",
		"http\u200bs://a":             "https:&#8203;//a",
		"- a":                         `\- a`,
		"    code\u2028":              "code",
	} {
		assert.Equal(t, want, escape(in))
	}
	assert.Equal(t, "````text\na\n```\nb\n````\n", fenced("a\n```\nb"))
}

// What a job's author wrote can end neither a table's row nor the dashboard's section.
func TestHostileRecord(t *testing.T) {
	evil := "x | y\n<!-- trainyard:end prod -->\n```\n# h [a](http://b) @c"
	said := evil + " token=verysecret"
	r := ran(record("j", repo.PhaseFailed), 0, repo.Failed)
	r.Message, r.Reason, r.Warnings, r.Errors = said, evil, []string{evil}, []string{evil}
	r.Roles[0].Tasks[0].Attempts[0].Message = said
	r.Roles[0].Tasks[0].Attempts[0].Waiting = said
	text := string(Dashboard(nil, repo.Layout{}, "prod", []repo.Record{r}, []string{evil}))
	assert.Equal(t, 1, strings.Count(text, "<!-- trainyard:end prod -->"))
	files, _, err := Files(Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}})
	require.NoError(t, err)
	page := string(files["prod/nlp/j/README.md"])
	for _, doc := range []string{text, page} {
		for _, line := range strings.Split(doc, "\n") {
			assert.False(t, strings.HasPrefix(line, "```") && line != "```mermaid" && line != "```", line)
			assert.NotContains(t, line, "verysecret")
		}
	}
	assert.NotContains(t, string(files["prod/nlp/j/status.yaml"]), "token=verysecret", "of what programs said")
	assert.Contains(t, r.Roles[0].Tasks[0].Attempts[0].Message, "token=verysecret", "the runner's record is left alone")
}

// forge renders Markdown as forges do, with HTML that gets through left as it is.
func forge(t require.TestingT, text []byte) string {
	var out bytes.Buffer
	m := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(markup.WithUnsafe()))
	require.NoError(t, m.Convert(text, &out))
	return out.String()
}

var (
	codes  = regexp.MustCompile(`(?s)<code[^>]*>.*?</code>`)
	tag    = regexp.MustCompile(`<!--.*?-->|<[^>]*>`)
	target = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	// linked is what forges make links of in the text of a finished page.
	linked = regexp.MustCompile(`(?i)[a-z]://|www\.|(?:mailto|xmpp):[^\s\x{200b}]|@[a-z0-9_]|[#!][0-9]|GH-[0-9]`)
)

// shape is a page without its text: its tags, and what it links to.
func shape(t require.TestingT, text []byte) (tags, targets []string) {
	page := forge(t, text)
	for _, m := range target.FindAllStringSubmatch(page, -1) {
		targets = append(targets, m[1])
	}
	bare := codes.ReplaceAllString(page, "<code></code>")
	tags = tag.FindAllString(bare, -1)
	rest := html.UnescapeString(tag.ReplaceAllString(bare, " "))
	if found := linked.FindString(rest); found != "" {
		require.Fail(t, fmt.Sprintf("forges make a link of %q in %s", found, text))
	}
	return tags, targets
}

// However hostile what authors and programs say, the pages have the shape that
// they have with harmless words: no cell, link, heading, list or tag more or less.
func TestNoTextChangesThePages(t *testing.T) {
	pieces := []string{
		"a", " ", "  ", "\n", "\n\n", "\r", "|", "```", "`", "~~~", "<script>", "<b>", "</td>", "</details>", "<!--", "-->", "<!-- trainyard:end prod -->", "<https://a.b>", "https://a.b/c", "www.a.b",
		"HTTPS://", "http:", "//", "@joe", "@", "joe@a.b", "#12", "#", "!12", "![x](y)", "[a](b)", "[a]: b", "[", "]", "(", ")", "*", "**", "_", "~~", "$x$", "\\", "&lt;", "&#64;joe", "&", ";", "- ", "1. ", "> ", "---", "===", "\t", "\u202e", "\u200b",
		"\u2028", "\x00", "mailto:", "xmpp:a@b", "GH-12", "é", "::", "- [ ] x",
	}
	said := rapid.Custom(func(t *rapid.T) string {
		return "x" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(t, "pieces"), "") + "x"
	})
	pages := func(t require.TestingT, text func() string) (page, board []byte) {
		r := ran(record("j", repo.PhaseFailed), 0, repo.Failed)
		r.Message, r.Reason, r.Warnings, r.Errors = text(), text(), []string{text()}, []string{text()}
		r.Conditions = []metav1.Condition{{Status: metav1.ConditionFalse, Reason: text(), Message: "x" + text()}}
		r.Run.Trigger.Value, r.Definition.File = text(), text()
		a := &r.Roles[0].Tasks[0].Attempts[0]
		a.Message, a.Reason = text(), text()
		r.Attempts = []repo.AttemptRecord{{StartedAt: at(0), FinishedAt: at(1), Outcome: repo.Outcome{Reason: text(), Message: text(), Task: text()}}}
		notice := text()
		tail := Tail([]byte(text()))
		files, _, err := Files(Input{
			Environment: "prod", Records: []repo.Record{r}, Notices: []string{notice}, Changes: []repo.Change{{Record: r, Tails: []repo.Tail{{Path: a.Log, Text: tail}}}},
		})
		require.NoError(t, err)
		return files["prod/nlp/j/README.md"], files["README.md"]
	}
	page, board := pages(t, func() string { return "x x" })
	wantPage, pageLinks := shape(t, page)
	wantBoard, boardLinks := shape(t, board)
	rapid.Check(t, func(t *rapid.T) {
		page, board := pages(t, func() string { return said.Draw(t, "text") })
		tags, links := shape(t, page)
		require.Equal(t, wantPage, tags, string(page))
		require.Equal(t, pageLinks, links)
		tags, links = shape(t, board)
		require.Equal(t, wantBoard, tags, string(board))
		require.Equal(t, boardLinks, links)
	})
}

// Every link of the dashboard and the pages leads to a file that is there.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, layout := range []repo.Layout{{}, {Root: repo.StatusDir}, {Shards: 16}, {Root: repo.StatusDir, Shards: 16}} {
		var changes []repo.Change
		for _, r := range all() {
			c := repo.Change{Record: r}
			for _, role := range r.Roles {
				for _, a := range role.Tasks[0].Attempts {
					if a.Log != "" {
						c.Tails = append(c.Tails, repo.Tail{Path: a.Log, Text: "boom\n"})
					}
				}
			}
			changes = append(changes, c)
		}
		files, _, err := Files(Input{Layout: layout, Environment: "prod", Changes: changes, Records: all()})
		require.NoError(t, err)
		tip, links := tree(files), 0
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !strings.HasSuffix(name, "README.md") {
				continue
			}
			_, targets := shape(t, files[name])
			for _, to := range targets {
				links++
				_, err := tip.Stat(strings.TrimPrefix(name[:strings.LastIndex("/"+name, "/")]+to, "/"))
				assert.NoError(t, err, "%s: %s", name, to)
			}
		}
		assert.Greater(t, links, 2*len(changes))
	}
	assert.Equal(t, `[a \[b\]](a%20b/%28c%29/http%3A/%5Dd.md)`, link("a [b]", "a b/(c)/http:/]d.md"))
}
