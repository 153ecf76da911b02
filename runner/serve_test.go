package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// withBoard adds a task that outlives the run.
func withBoard(j *repo.Job) {
	board := j.Roles[0]
	board.Name, board.Replicas, board.Daemon, board.Outlives = "board", 1, true, true
	board.MinSucceeded, board.MinFailed = repo.Never, repo.Never
	j.Roles = append(j.Roles, board)
}

// withBoardLeft is a job that has succeeded, whose board goes on.
func withBoardLeft(t *testing.T) *world {
	t.Helper()
	w := pushed(t, single, withBoard)
	w.settle()
	w.start("main-0", "board-0")
	w.sleep(time.Second)
	w.end("main-0", 0)
	w.settle()
	require.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	require.Equal(t, []string{"board-0"}, w.live())
	require.Equal(t, repo.TaskRunning, w.task("board-0").Phase)
	require.True(t, w.out.Settled)
	return w
}

func TestBoardOutlivesTheRun(t *testing.T) {
	w := withBoardLeft(t)
	w.sleep(24 * time.Hour)
	w.kill()
	w.settle()
	assert.Equal(t, []string{"board-0"}, w.live(), "also the daemon")
	w.push(nil)
	w.settle()
	assert.Empty(t, w.live())
	assert.Empty(t, w.pods)
	assert.Empty(t, w.runs)
	assert.Equal(t, ReasonRemoved, w.task("board-0").Attempts[0].Reason)
}

func TestBoardEndsBeforeTheNextRun(t *testing.T) {
	w := withBoardLeft(t)
	w.stubborn = true
	w.edit(func(j *repo.Job) { j.Digest = "d1" })
	w.settle()
	assert.Equal(t, []string{"board-0"}, w.live(), "it still ends: nothing new starts")
	assert.False(t, w.out.Settled)
	w.end("board-0", 143)
	w.settle()
	assert.Equal(t, []string{"main-0", "board-0"}, w.live())
	assert.Len(t, w.starts, 4)
}

func TestBoardThatEndsAfterTheRunIsRecordedBeforeItIsReleased(t *testing.T) {
	w := withBoardLeft(t)
	w.sleep(time.Hour)
	w.end("board-0", 1)
	w.act()
	assert.True(t, w.latest("board-0").Held, "nobody knows yet")
	w.settle()
	assert.Equal(t, repo.Failed, w.task("board-0").Attempts[0].Result)
	assert.Equal(t, repo.PhaseSucceeded, w.record.Phase)
	assert.Empty(t, w.pods)
}

func TestBoardIsStoppedWithTheRunAndWithEachRetry(t *testing.T) {
	w := pushed(t, single, withBoard, func(j *repo.Job) { j.Retry = repo.Retry{Limit: 1, Mode: repo.ByCount} })
	w.settle()
	w.sleep(time.Second)
	w.end("main-0", 1)
	w.settle()
	assert.Equal(t, []string{"main-0", "board-0"}, w.live())
	assert.Equal(t, int32(1), w.record.Run.Attempt)
	w.edit(func(j *repo.Job) { j.Stop = true })
	w.settle()
	assert.Empty(t, w.live())
	assert.Equal(t, repo.PhaseStopped, w.record.Phase)
}

// Two daemons by accident: one of them has retried what the other one's record
// says has outlived its run.
func TestRetryOfAFinishedRunIsTakenUp(t *testing.T) {
	w := pushed(t, single, func(j *repo.Job) { j.FailureBudget, j.Roles[0].Retry.Limit = new(int32(3)), 1 }, withBoard)
	w.settle()
	w.start("main-0", "board-0")
	w.sleep(time.Second)
	w.end("main-0", 0)
	w.settle()
	w.sleep(time.Second)
	retry := *w.latest("board-0")
	w.end("board-0", 1)
	retry.Attempt.Attempt, retry.UID = 1, "theirs"
	retry.Name = repo.PodName(retry.Run, retry.Attempt)
	w.pods = append(w.pods, &retry)
	w.decide()
	assert.Len(t, w.task("board-0").Attempts, 2)
	assert.Equal(t, int32(1), w.task("board-0").Retries.Total)
}

// What outlived a run failed, and the next run began, before a push told of
// either: the end of its log is kept all the same.
func TestLogOfABoardIsKeptWhenTheNextRunIsTakenUp(t *testing.T) {
	w := withBoardLeft(t)
	w.sleep(time.Second)
	w.end("board-0", 1)
	board := w.latest("board-0")
	board.Tail = "no port is free"
	w.edit(digest("B"))
	w.act() // decides its end, and begins the next run
	require.Equal(t, "B", w.record.Run.Digest)
	w.record = deepCopy(*w.published)
	out := w.decide()
	require.Equal(t, "B", out.Record.Run.Digest)
	assert.Equal(t, repo.TailPath(board.Run, board.Attempt), out.Logs[board.Name])
}
