package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner"
	"github.com/trainyard/trainyard/status"
)

// told is all that the status branch ever said of a job, oldest first.
type told struct {
	records   []repo.Record
	histories [][]byte
	outcomes  map[string][]string // of pods, each that was ever given
	ends      map[string]repo.TaskAttemptRecord
}

// laws are what holds after a round, seen from outside.
func (x *chaos) laws() {
	x.t.Helper()
	x.onceBorn()
	branch := x.readBranch()
	for _, j := range x.jobs {
		said := branch[j.name]
		if said == nil {
			assert.Equal(x.t, repo.PhaseRemoved, j.phase, "%s has no record", j.name)
			continue
		}
		x.historyGrows(j.name, said)
		x.outcomesStay(j, said)
		x.countsAreRight(j, said)
		x.madeForIt(j, said)
	}
	x.allRecorded(branch)
	x.neverTwoAtATime()
	x.releasedAfterPush()
	x.daemonsAreWell()
	if x.real != nil {
		x.containersTell(branch)
	}
}

// onceBorn: no name was given to two pods, by what was seen and by the server's own log.
func (x *chaos) onceBorn() {
	names := map[string]int{}
	for _, l := range x.seen.all() {
		names[l.name]++
	}
	for name, n := range names {
		assert.Equal(x.t, 1, n, "pods named %s were seen", name)
	}
	for name, n := range x.creations() {
		assert.Equal(x.t, 1, n, "pods named %s were created", name)
	}
}

// readBranch reads every version of every record and history.
func (w *world) readBranch() map[string]*told {
	log := w.git(w.remote, "log", "--reverse", "--raw", "--no-abbrev", "--no-renames", "--format=", repo.StatusBranch)
	type blob struct{ id, path string }
	var blobs []blob
	for line := range strings.Lines(log) { // :100644 100644 OLD NEW M<tab>PATH
		fields := strings.Fields(line)
		if len(fields) < 6 || strings.Trim(fields[3], "0") == "" {
			continue
		}
		if base := path.Base(fields[5]); base == repo.StatusFile || base == repo.HistoryFile {
			blobs = append(blobs, blob{fields[3], fields[5]})
		}
	}
	ids := ""
	for _, b := range blobs {
		ids += b.id + "\n"
	}
	cmd := exec.Command("git", "cat-file", "--batch")
	cmd.Dir, cmd.Env, cmd.Stdin = w.remote, w.env, strings.NewReader(ids)
	out, err := cmd.Output()
	require.NoError(w.t, err)
	branch := map[string]*told{}
	for _, b := range blobs {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		size, err := strconv.Atoi(strings.Fields(string(head))[2])
		require.NoError(w.t, err, "%s", head)
		text := rest[:size]
		out = rest[size+1:]
		job := path.Base(path.Dir(b.path))
		if branch[job] == nil {
			branch[job] = &told{outcomes: map[string][]string{}, ends: map[string]repo.TaskAttemptRecord{}}
		}
		w.hear(branch[job], path.Base(b.path), text)
	}
	return branch
}

func (w *world) hear(said *told, file string, text []byte) {
	if file == repo.HistoryFile {
		said.histories = append(said.histories, text)
		return
	}
	rec, err := status.Decode(text)
	require.NoError(w.t, err)
	said.records = append(said.records, rec)
	eachAttempt(&rec, func(a *repo.TaskAttemptRecord) {
		if a.Outcome == nil || a.UID == "" {
			return
		}
		text := fmt.Sprintf("%s %s %s free=%v %s", a.UID, a.Result, a.Reason, a.Free, a.Class)
		if !slices.Contains(said.outcomes[a.Pod], text) {
			said.outcomes[a.Pod] = append(said.outcomes[a.Pod], text)
		}
		said.ends[a.Pod] = *a
	})
}

func eachAttempt(rec *repo.Record, f func(*repo.TaskAttemptRecord)) {
	each := func(tasks []repo.TaskRecord) {
		for i := range tasks {
			for j := range tasks[i].Attempts {
				f(&tasks[i].Attempts[j])
			}
		}
	}
	for i := range rec.Roles {
		each(rec.Roles[i].Tasks)
	}
	for i := range rec.Attempts {
		each(rec.Attempts[i].Tasks)
	}
}

// historyGrows: what was once in it stays, byte for byte, and no run is in it twice.
func (w *world) historyGrows(job string, said *told) {
	var last []byte
	for _, text := range said.histories {
		assert.True(w.t, bytes.HasPrefix(text, last), "%s: history was changed from\n%s\nto\n%s", job, last, text)
		last = text
	}
	runs := map[string]bool{}
	for line := range strings.Lines(string(last)) {
		id, _, _ := strings.Cut(line, ",")
		assert.False(w.t, runs[id], "%s: a run is in the history twice: %s", job, line)
		runs[id] = true
	}
}

// outcomesStay: a pod has one outcome, and keeps it. Who failed without being
// to blame was deleted by hand or by the cluster; who is to blame exited so.
func (x *chaos) outcomesStay(j *chaosJob, said *told) {
	by := map[string]*life{}
	for _, l := range x.seen.all() {
		by[l.name] = l
	}
	for pod, outcomes := range said.outcomes {
		assert.Len(x.t, outcomes, 1, "outcomes of %s: %v", pod, outcomes)
		end, l := said.ends[pod], by[pod]
		if l != nil {
			assert.Equal(x.t, string(l.uid), end.UID, "UID of %s", pod)
		}
		if end.Result != repo.Failed {
			continue
		}
		// FrameworkController's own rules know no failure that counts for nothing, and
		// forgive these by their class.
		if end.Free || slices.Contains([]string{"PodExternalDeleted", "PodNodeLost", "ContainerStartInterrupted"}, end.Reason) {
			starting := strings.HasSuffix(end.Reason, "StartInterrupted") // a kubelet or containerd that goes takes no pod with it but those
			harmed := l == nil || l.byHand || l.taken || x.wentWithNode(l, starting)
			assert.True(x.t, harmed, "nobody has harmed %s: %s %s, %+v, %+v", pod, end.Reason, end.Message, l, x.outages)
		} else if l != nil && x.wasUnborn(l) {
			x.unborn[j.name]++
		} else if assert.NotNil(x.t, end.ExitCode, "%s has failed: %s %s", pod, end.Reason, end.Message) {
			assert.Equal(x.t, j.code, *end.ExitCode, "%s has failed: %s %s", pod, end.Reason, end.Message)
		}
	}
}

// countsAreRight: every retry is counted once, and those that the job answers
// for are as many as it was written to need.
func (x *chaos) countsAreRight(j *chaosJob, said *told) {
	rec := &said.records[len(said.records)-1]
	if rec.Run == nil || rec.Phase == repo.PhaseRemoved {
		return
	}
	assert.Equal(x.t, j.ofRun, rec.Run.Retries.Accountable, "%s: accountable retries of the run", j.name)
	assert.Equal(x.t, rec.Run.Attempt, rec.Run.Retries.Total, "%s: retries of the run, by its attempts", j.name)
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			assert.InDelta(x.t, j.ofTask, t.Retries.Accountable, float64(x.unborn[j.name]), "%s: accountable retries of %s", j.name, t.Name)
			if n := len(t.Attempts); n > 0 && assert.NotNil(x.t, t.Attempts[n-1].Outcome, "%s: outcome of %s", j.name, t.Name) {
				// Not one that the run's end overtook.
				assert.Equal(x.t, t.Attempts[n-1].Attempt, t.Retries.Total, "%s: retries of %s, by its attempts", j.name, t.Name)
			}
		}
	}
}

// madeForIt: what is told of an attempt is told of a pod that was made for it.
func (x *chaos) madeForIt(j *chaosJob, said *told) {
	made := map[string]repo.TaskAttempt{}
	for _, l := range x.seen.all() {
		made[string(l.uid)] = l.attempt
	}
	for i := range said.records {
		rec := &said.records[i]
		check := func(attempt int32, tasks []repo.TaskRecord) {
			for _, t := range tasks {
				for _, a := range t.Attempts {
					if of, ok := made[a.UID]; ok {
						want := fmt.Sprintf("%s attempt %d of attempt %d", t.Name, a.Attempt, attempt)
						assert.Equal(x.t, want, fmt.Sprintf("%s attempt %d of attempt %d", of.Task, of.Attempt, of.RunAttempt), "%s: %s", j.name, a.Pod)
					}
				}
			}
		}
		for _, r := range rec.Roles {
			check(rec.Run.Attempt, r.Tasks)
		}
		for _, a := range rec.Attempts {
			check(a.Attempt, a.Tasks)
		}
	}
}

// allRecorded: of every pod that there was the branch has told the end, but of
// those of an attempt that was over, with another one begun, before the next push.
func (x *chaos) allRecorded(branch map[string]*told) {
	for _, l := range x.seen.all() {
		said := branch[l.job]
		if !assert.NotNil(x.t, said, "%s has a pod and no record", l.job) || len(said.outcomes[l.name]) > 0 {
			continue
		}
		rec := &said.records[len(said.records)-1]
		superseded := rec.Run != nil && (rec.Run.ID != l.run || rec.Run.Attempt > l.attempt.RunAttempt)
		assert.True(x.t, superseded, "the branch never told how %s has ended", l.name)
	}
}

// neverTwoAtATime: no task had two pods that ran at once, unless that was allowed.
func (x *chaos) neverTwoAtATime() {
	overlap := map[string]bool{}
	for _, j := range x.jobs {
		overlap[j.name] = j.overlap
	}
	tasks := map[string][]*life{}
	for _, l := range x.seen.all() {
		task := l.run + " " + l.attempt.Task.String()
		tasks[task] = append(tasks[task], l)
	}
	for _, lives := range tasks {
		slices.SortFunc(lives, func(a, b *life) int { return int(int64(a.first) - int64(b.first)) })
		for i, l := range lives[1:] {
			before := lives[i]
			if overlap[l.job] || before.byForce {
				continue
			}
			assert.Less(x.t, before.running, l.first, "%s ran when %s was made", before.name, l.name)
			assert.False(x.t, l.created.Before(before.ended), "%s was made at %s, when %s ran until %s", l.name, l.created, before.name, before.ended)
		}
	}
}

// releasedAfterPush: when a pod was let go, its outcome had reached the remote.
func (x *chaos) releasedAfterPush() {
	type at struct{ tip, job string }
	read := map[at]*repo.Record{}
	for _, l := range x.seen.all() {
		if !l.released {
			continue
		}
		where := at{l.tip, l.job}
		if _, ok := read[where]; !ok {
			read[where] = x.recordAt(l.tip, l.job)
		}
		rec := read[where]
		if assert.NotNil(x.t, rec, "%s was released at %.10s, when its job had no record", l.name, l.tip) {
			assert.True(x.t, knowsEnd(rec, l), "%s was released at %.10s, when the branch did not know its end", l.name, l.tip)
		}
	}
}

func (x *chaos) recordAt(tip, job string) *repo.Record {
	dir := tip + ":" + path.Join(repo.DefaultEnvironment, x.namespace, job)
	text, err := x.tryGit(x.remote, "show", dir+"/"+repo.StatusFile)
	if err != nil {
		return nil
	}
	rec, err := status.Decode([]byte(text))
	require.NoError(x.t, err)
	if text, err := x.tryGit(x.remote, "show", dir+"/"+repo.HistoryFile); err == nil {
		rec.History, _ = status.DecodeHistory(repo.HistoryFile, []byte(text))
	}
	return &rec
}

// knowsEnd says whether a record tells that a pod has ended, or that its
// attempt is over.
func knowsEnd(rec *repo.Record, l *life) (knows bool) {
	if slices.ContainsFunc(rec.History, func(r repo.RunSummary) bool { return r.ID == l.run }) {
		return true
	}
	if rec.Run == nil || rec.Run.ID != l.run {
		return false
	}
	if rec.Run.Attempt > l.attempt.RunAttempt || rec.Run.FinishedAt != nil {
		return true
	}
	for _, r := range rec.Roles {
		for _, t := range r.Tasks {
			for _, a := range t.Attempts {
				if r.Name == l.attempt.Role && t.Index == l.attempt.Index {
					knows = knows || a.Attempt > l.attempt.Attempt || a.Attempt == l.attempt.Attempt && a.Outcome != nil
				}
			}
		}
	}
	return knows
}

// daemonsAreWell: none has broken down, and no pod was lost sight of.
func (x *chaos) daemonsAreWell() {
	for pod, reasons := range x.lostPods() {
		assert.Fail(x.t, "the daemon does not know how "+pod+" has ended", reasons)
	}
	assert.NotContains(x.t, x.d.out.String(), "panic")
}

// lostPods are those of which the records say that nobody knows how they ended.
func (x *chaos) lostPods() map[string]string {
	out := map[string]string{}
	for _, j := range x.jobs {
		rec, _ := x.clusterRecord(j.name)
		eachAttempt(&rec, func(a *repo.TaskAttemptRecord) {
			if a.Outcome != nil && (a.Reason == runner.ReasonPodLost || a.Reason == runner.ReasonRecordLost) {
				out[a.Pod] = a.Message
			}
		})
	}
	return out
}
