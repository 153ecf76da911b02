package status

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// asText is a record to compare: times in it may be of another zone.
func asText(t require.TestingT, r repo.Record) string {
	b, err := json.Marshal(r)
	require.NoError(t, err)
	return string(b)
}

// anyText is text that YAML could misread, or any other.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "n", "yes", "~", "null", "010", "0x1f", "1e3", "1:30", "2026-03-02", "- a", "a: b", "#", "'", "\"", "|", ">-", "---", "...", "%TAG", "<<", "*a", "&a", "!!int", "@", "`",
			" a ", "\t", "a\nb", "a\r\nb\n\n", "\x00\x1b[31m", "\u0085", "\u2028\u2029", "\ufeff", "\u202e", "\U0010ffff", "\ufffe", "é", strings.Repeat("long ", 50),
		}),
		rapid.String(),
	)
}

// anyRecord is a record with anything in every field.
func anyRecord() *rapid.Generator[repo.Record] {
	moment := rapid.Custom(func(t *rapid.T) metav1.Time {
		return metav1.NewTime(time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "seconds"), 0).UTC())
	})
	return rapid.Custom(func(t *rapid.T) repo.Record {
		r := rapid.MakeCustom[repo.Record](rapid.MakeConfig{
			Types: map[reflect.Type]*rapid.Generator[any]{
				reflect.TypeFor[metav1.Time]():              moment.AsAny(),
				reflect.TypeFor[[]repo.RunSummary]():        rapid.Just([]repo.RunSummary(nil)).AsAny(),
				reflect.TypeFor[[]repo.RoleRecord]():        few[repo.RoleRecord](moment),
				reflect.TypeFor[[]repo.AttemptRecord]():     few[repo.AttemptRecord](moment),
				reflect.TypeFor[[]metav1.Condition]():       few[metav1.Condition](moment),
				reflect.TypeFor[[]repo.TaskAttemptRecord](): few[repo.TaskAttemptRecord](moment),
				reflect.TypeFor[repo.Phase]():               rapid.SampledFrom([]repo.Phase{repo.PhaseRunning, repo.PhaseFailed, "Unheard"}).AsAny(),
				reflect.TypeFor[repo.RecordMeta]():          rapid.Custom(anyMeta).AsAny(),
			},
			Kinds: map[reflect.Kind]*rapid.Generator[any]{reflect.String: anyText().AsAny()},
		}).Draw(t, "record")
		r.APIVersion, r.Kind, r.Dir, r.Damaged = repo.APIVersion, repo.RecordKind, "", ""
		makePossible(&r)
		return r
	})
}

// makePossible mends what Check would find in a record.
func makePossible(r *repo.Record) {
	mend := func(n *int32) { *n &= repo.MostAttempts - 1 }
	if run := r.Run; run != nil {
		run.ID = "j-" + run.ID
		run.FinishedAt, run.RetryAt = nil, nil
		if run.Outcome != nil {
			run.FinishedAt = &run.StartedAt
		}
		mend(&run.Attempt)
		mend(&run.Retries.Total)
		mend(&run.Retries.Accountable)
	} else {
		r.Roles = nil
	}
	for i := range r.Attempts {
		mend(&r.Attempts[i].Attempt)
	}
	for i := range r.Roles {
		role := &r.Roles[i]
		role.Name = fmt.Sprint(role.Name, i)
		role.Replicas = int32(len(role.Tasks))
		for j := range role.Tasks {
			role.Tasks[j].Index = int32(j)
			role.Tasks[j].Name = repo.Task{Role: role.Name, Index: int32(j)}.String()
		}
	}
	eachTask(r, func(t *repo.TaskRecord) {
		mend(&t.FirstAttempt)
		mend(&t.Retries.Total)
		mend(&t.Retries.Accountable)
		for i := range t.Attempts {
			t.Attempts[i].Attempt = int32(i)
		}
	})
}

func anyMeta(t *rapid.T) repo.RecordMeta {
	key := rapid.OneOf(rapid.SampledFrom([]string{"n", "yes", "null", "010", "1e3", "1.5", "true", "2026-03-02"}), rapid.StringMatching(`[A-Za-z0-9]([A-Za-z0-9._/-]{0,8}[A-Za-z0-9])?`))
	return repo.RecordMeta{Name: "j", Namespace: "nlp", Labels: rapid.MapOfN(key, anyText(), 0, 3).Draw(t, "labels")}
}

// few are up to two of something, so that records stay small.
func few[T any](moment *rapid.Generator[metav1.Time]) *rapid.Generator[any] {
	types := map[reflect.Type]*rapid.Generator[any]{reflect.TypeFor[metav1.Time](): moment.AsAny()}
	attempt := rapid.MakeCustom[repo.TaskAttemptRecord](rapid.MakeConfig{Types: types, Kinds: map[reflect.Kind]*rapid.Generator[any]{reflect.String: anyText().AsAny()}})
	types[reflect.TypeFor[[]repo.TaskAttemptRecord]()] = rapid.SliceOfN(attempt, 0, 2).AsAny()
	task := rapid.MakeCustom[repo.TaskRecord](rapid.MakeConfig{Types: types})
	types[reflect.TypeFor[[]repo.TaskRecord]()] = rapid.SliceOfN(task, 0, 2).AsAny()
	return rapid.SliceOfN(rapid.MakeCustom[T](rapid.MakeConfig{Types: types}), 0, 2).AsAny()
}

func TestRecordsSurviveTheirFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRecord().Draw(t, "any")
		b, err := Encode(r)
		require.NoError(t, err)
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, asText(t, r), asText(t, got))
		again, err := Encode(got)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again), "the same state gives the same bytes")
	})
}

// What is read back from the files is what was written into them, whatever
// programs said, and writing it once more changes nothing.
func TestFilesSurviveAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRecord().Draw(t, "any")
		r.Environment = "prod"
		before := asText(t, r)
		in := Input{Environment: "prod", Changes: []repo.Change{{Record: r}}, Records: []repo.Record{r}}
		files, _, err := Files(in)
		require.NoError(t, err)
		require.Equal(t, before, asText(t, r), "the runner's record is left alone")
		in.Tip = tree(files)
		again, _, err := Files(in)
		require.NoError(t, err)
		require.Empty(t, again)
		read, problems := Read(in.Tip, repo.Layout{}, "prod")
		require.Empty(t, problems)
		require.Len(t, read, 1)
		in.Changes[0].Record, in.Records = read[0], read
		again, _, err = Files(in)
		require.NoError(t, err)
		delete(again, "README.md") // of records as the runner has them
		require.Empty(t, again, "after a restart")
	})
}

// crowd is a record of very many tasks with all the attempts that are kept of them.
func crowd(tasks, attempts int) repo.Record {
	r := ran(record("j", repo.PhaseRunning), 0, repo.Failed)
	task := r.Roles[0].Tasks[0]
	a := task.Attempts[0]
	r.Roles[0].Tasks = nil
	for i := range tasks {
		task.Name, task.Index, task.Attempts = fmt.Sprintf("worker-%d", i), int32(i), nil
		task.Retries = repo.Retries{Total: int32(attempts), Accountable: int32(i % 3)}
		for n := range attempts {
			o := *a.Outcome
			o.Message = strings.Repeat("m", repo.MaxMessage)
			a.Attempt, a.Outcome, a.Pod = int32(n), &o, fmt.Sprintf("j-worker-%d-0-%d", i, n)
			task.Attempts = append(task.Attempts, a)
		}
		r.Roles[0].Tasks = append(r.Roles[0].Tasks, task)
	}
	r.Attempts = []repo.AttemptRecord{{Tasks: r.Roles[0].Tasks[:tasks/2]}}
	return r
}

func TestLargeRecordsAreFolded(t *testing.T) {
	r := crowd(400, repo.MaxAttempts)
	before := asText(t, r)
	b, err := Encode(r)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(b), maxRecord)
	assert.Equal(t, before, asText(t, r), "the record itself is as it was")

	// All but messages and early attempts is there, and folding it again changes nothing.
	got, err := Decode(b)
	require.NoError(t, err)
	bare := func(t *repo.TaskRecord) { foldMessages(t, 0); t.Attempts = t.Attempts[len(t.Attempts)-1:] }
	want, err := copied(r)
	require.NoError(t, err)
	eachTask(&want, bare)
	eachTask(&got, bare)
	assert.Equal(t, asText(t, want), asText(t, got))
	again, err := Decode(b)
	require.NoError(t, err)
	twice, err := Encode(again)
	require.NoError(t, err)
	assert.Equal(t, string(b), string(twice))

	small, err := Encode(crowd(20, 3))
	require.NoError(t, err)
	assert.Equal(t, 60+30, strings.Count(string(small), "mmm\n"), "below the bound nothing is left out")
}

// A record of as many tasks as a job may have stays within what forges take.
func TestTheLargestRecord(t *testing.T) {
	b, err := Encode(crowd(10000, 1))
	require.NoError(t, err)
	assert.Less(t, len(b), 8<<20)
}
