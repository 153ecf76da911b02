package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"password=hunter2":                               "password=***",
		`"api_key": "abcdef"`:                            `"api_key": "***"`,
		"AWS_SECRET_ACCESS_KEY=abc/def+g":                "AWS_SECRET_ACCESS_KEY=***",
		"HF_TOKEN: hf_abc":                               "HF_TOKEN: ***",
		"key AKIAIOSFODNN7EXAMPLE used":                  "key *** used",
		"Authorization: Bearer abcdefghijkl":             "Authorization: Bearer ***",
		"git clone https://user:p%40ss@example.com/x":    "git clone https://***@example.com/x",
		"postgres://u:p@ss@db/x":                         "postgres://***@db/x",
		"eyJhbGciOiJI.eyJzdWIiOiIx.abcdef rest":          "*** rest",
		"-----BEGIN RSA PRIVATE KEY-----\nMII\nabc":      "***",
		"MIIabc\nd+/=\n-----END PRIVATE KEY-----\nafter": "***\nafter",
		"train.py --token abcdef --lr 0.1":               "train.py --token *** --lr 0.1",
		"ghp_abcdefghijklmnopqrstuvwx":                   "***",

		"tokens/s=1200":                    "tokens/s=1200",
		"tokens_per_second: 3":             "tokens_per_second: 3",
		"token_count=5, loss=0.3":          "token_count=5, loss=0.3",
		"eos_token: 2":                     "eos_token: 2",
		"loss=0.25 acc=0.9 lr=1e-4":        "loss=0.25 acc=0.9 lr=1e-4",
		"sha256:4b825dc642cb6eb9a060e54bf": "sha256:4b825dc642cb6eb9a060e54bf",
		"epoch 3: 12:30:45 https://a.b/c":  "epoch 3: 12:30:45 https://a.b/c",
	} {
		assert.Equal(t, want, Mask(in), in)
		assert.Equal(t, want, Mask(Mask(in)), "twice: %s", in)
	}
}

func TestTail(t *testing.T) {
	var long strings.Builder
	for i := range 200 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	got := Tail([]byte(long.String()))
	assert.True(t, strings.HasPrefix(got, "line 150\n") && strings.HasSuffix(got, "line 199\n"), got)

	wide := strings.Repeat(strings.Repeat("é", 2000)+"\n", 10)
	assert.LessOrEqual(t, len(Tail([]byte(wide))), tailBytes+1)
	assert.Len(t, strings.Split(strings.TrimSpace(Tail([]byte(wide))), "\n"), 4, "whole lines")
	one := Tail([]byte(strings.Repeat("é", 20000)))
	assert.True(t, utf8.ValidString(one) && len(one) <= tailBytes+1 && len(one) > tailBytes-4)

	for in, want := range map[string]string{
		"":                                 "",
		"\n\n":                             "",
		"10%\r50%\r100%\ndone":             "100%\ndone\n",
		"a\r\nb\r\n":                       "a\nb\n",
		"\x1b[31mred\x1b[0m \x1b]0;t\x07x": "red x\n",
		"bad \xff\xfe bytes\x00":           "bad � bytes\n",
		"\u202eright to left":              "right to left\n",
		"token=abcdef\n":                   "token=***\n",
	} {
		assert.Equal(t, want, Tail([]byte(in)), "%q", in)
	}
}

func TestHostileTextStaysText(t *testing.T) {
	for in, want := range map[string]string{
		"a | b":                       `a \| b`,
		"<script>alert(1)</script>":   "&lt;script&gt;alert(1)&lt;/script&gt;",
		"![x](https://evil)":          `!\[x\](https\://evil)`,
		"see www.evil.example":        `see www\.evil.example`,
		"@mnist and #12":              `\@mnist and \#12`,
		"two\nlines\r\u202e":          "two lines",
		"`code` *b* _i_ ~s~ $m$":      "\\`code\\` \\*b\\* \\_i\\_ \\~s\\~ \\$m\\$",
		"<!-- trainyard:end prod -->": "&lt;!-- trainyard:end prod --&gt;",
		"jobs/a.yaml:3:4: no":         "jobs/a.yaml:3:4: no",
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
			assert.NotRegexp(t, `[^\\]\]\(http`, line)
			assert.NotContains(t, line, "verysecret")
		}
	}
	assert.NotContains(t, string(files["prod/nlp/j/status.yaml"]), "token=verysecret", "of what programs said")
	assert.Contains(t, r.Roles[0].Tasks[0].Attempts[0].Message, "token=verysecret", "the runner's record is left alone")
}

func TestHistoryOnlyGrows(t *testing.T) {
	a, b := repo.RunSummary{ID: "a"}, repo.RunSummary{ID: "b", Outcome: repo.Outcome{Message: "password=hunter2"}}
	there, err := MergeHistory(nil, []repo.RunSummary{a})
	require.NoError(t, err)
	damaged := append([]byte("{broken\n"), there...)
	merged, err := MergeHistory(damaged, []repo.RunSummary{a, b})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(merged), string(damaged)), "byte for byte")
	assert.Equal(t, 3, strings.Count(string(merged), "\n"))
	assert.NotContains(t, string(merged), "hunter2")
	runs, problems := DecodeHistory("h", merged)
	require.Len(t, problems, 1)
	assert.Equal(t, 1, problems[0].Line)
	assert.Equal(t, []string{"a", "b"}, []string{runs[0].ID, runs[1].ID})
	again, err := MergeHistory(append(merged, merged[len(damaged):]...), []repo.RunSummary{a, b})
	require.NoError(t, err)
	assert.Equal(t, string(merged), string(again), "a line that a merge doubled is taken once")
}

func TestUnreadableRecords(t *testing.T) {
	good, err := Encode(record("j", repo.PhaseSucceeded))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"not YAML":          "{",
		"another kind":      "apiVersion: v1\nkind: ConfigMap\n",
		"another version":   strings.Replace(string(good), repo.APIVersion, "trainyard.dev/v9", 1),
		"another job":       strings.Replace(string(good), "name: j", "name: k", 1),
		"a conflict's mark": "<<<<<<< ours\n" + string(good),
		"empty":             "",
	} {
		t.Run(name, func(t *testing.T) {
			tip := fstest.MapFS{"prod/nlp/j/status.yaml": &fstest.MapFile{Data: []byte(text)}}
			records, problems := Read(tip, repo.Layout{}, "prod")
			require.Len(t, records, 1, "a job whose record cannot be read must not be taken for a new one")
			require.Len(t, problems, 1)
			assert.Equal(t, "prod/nlp/j/status.yaml", problems[0].File)
			assert.NotEmpty(t, records[0].Damaged)
			assert.Equal(t, repo.Key{Namespace: "nlp", Name: "j"}, records[0].Key())
		})
	}
}

func TestLargeRecordsAreFolded(t *testing.T) {
	r := ran(record("j", repo.PhaseRunning), 0, repo.Failed)
	task := r.Roles[0].Tasks[0]
	a := task.Attempts[0]
	r.Roles[0].Tasks = nil
	for i := range 500 {
		task.Name, task.Index, task.Attempts = fmt.Sprintf("worker-%d", i), int32(i), nil
		for n := range repo.MaxAttempts {
			o := *a.Outcome
			o.Message = strings.Repeat("m", repo.MaxMessage)
			a.Attempt, a.Outcome = int32(n), &o
			task.Attempts = append(task.Attempts, a)
		}
		r.Roles[0].Tasks = append(r.Roles[0].Tasks, task)
	}
	b, err := Encode(r)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(b), maxRecord)
	assert.Len(t, r.Roles[0].Tasks[0].Attempts, repo.MaxAttempts, "the record itself is as it was")
	assert.Len(t, r.Roles[0].Tasks[0].Attempts[0].Message, repo.MaxMessage)
	got, err := Decode(b)
	require.NoError(t, err)
	for i, task := range got.Roles[0].Tasks {
		last := task.Attempts[len(task.Attempts)-1]
		require.Equal(t, r.Roles[0].Tasks[i].Attempts[repo.MaxAttempts-1].Attempt, last.Attempt)
		require.Equal(t, repo.Failed, last.Result)
	}
}

// asText is a record to compare: times in it may be of another zone.
func asText(t require.TestingT, r repo.Record) string {
	b, err := json.Marshal(r)
	require.NoError(t, err)
	return string(b)
}

func TestRecordsSurviveTheirFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(all()).Draw(t, "record")
		text := rapid.StringMatching(`[a-zA-Z0-9 :#'"{}\[\]|>&*!%@\\-]{0,40}`)
		r.Message, r.Reason = text.Draw(t, "message"), text.Draw(t, "reason")
		r.Metadata.Labels = map[string]string{"team": text.Draw(t, "label")}
		if r.Run != nil {
			r.Run.Trigger.Value = text.Draw(t, "value")
			r.Run.Retries.Total = rapid.Int32Range(0, 100).Draw(t, "retries")
			r.Roles[0].Tasks[0].Attempts[0].Waiting = text.Draw(t, "waiting")
		}
		b, err := Encode(r)
		require.NoError(t, err)
		again, err := Encode(r)
		require.NoError(t, err)
		require.Equal(t, b, again)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, asText(t, r), asText(t, got))
	})
}
