package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Options of a Loop.
type Options struct {
	Environment string
	Workers     int // jobs looked at at once; 4 if 0
	Parallel    int // pods created at once for a job, when all goes well; 8 if 0
	// Poll is how often the source is asked, Publish how often records are
	// pushed at most.
	Poll    time.Duration
	Publish time.Duration
	// Forbidden says why a job must not start, "" if it may.
	Forbidden func(*repo.Job) string
	// Clock tells how long something takes; time.Now if nil.
	Clock func() time.Time
	Log   zerolog.Logger
	Hooks Hooks
}

// Hooks are told what happens, for metrics. Any of them may be nil.
type Hooks struct {
	Decided   func(took time.Duration)
	Created   func()
	Ended     func(repo.Outcome) // of a task attempt
	Published func(records int, err error)
}

// Loop keeps every job's pods and record on the way to what the definitions
// ask for. Its passes (Load, Define, Reconcile, Publish) are synchronous,
// idempotent and safe to be killed at any line; Run calls them at the right
// times from a few goroutines.
type Loop struct {
	backend Backend
	ledger  Ledger
	opts    Options
	queue   *queue

	mu        sync.Mutex
	jobs      map[repo.Key]*entry
	sighted   map[string]bool // runs whose pods were there before the records were read
	overtaken error           // somebody else knows more than we
	loaded    bool            // records were read: without them finished jobs would run again
	defined   bool
	revision  string
	notices   []string
	widths    map[string]int       // of the last window of creations, by namespace
	said      map[string]time.Time // when a cause for which jobs wait was logged last
	failing   int                  // jobs whose last pass met an error
	logless   bool                 // it was logged that logs may not be read
	// generation counts changes of what Publish would push, published is how
	// far it has come.
	generation, published int64
	dirty                 chan struct{} // has room for one: something is to be published
	progress              chan struct{} // has room for one: something came to rest
	hurry                 chan struct{} // has room for one: a push is all that is waited for
}

// entry is what the loop knows of a job.
type entry struct {
	key       repo.Key
	job       *repo.Job
	invalid   *repo.Invalid
	withheld  string
	removed   bool // the definition is gone, and that was not held back
	record    repo.Record
	version   int64 // grows with each change of record
	pushed    int64 // version that has reached the remote
	published *repo.Record
	runs      []repo.Run
	prepared  map[string]repo.Addresses
	refused   map[string]string
	troubles  map[string]string
	asked     map[string]time.Time // pods that may have been created, and nobody has seen; when the backend said that they were, if it has
	tails     map[string]string    // by pod, until pushed
	late      []repo.Tail          // the same, of pods that the record does not name any more
	failures  int                  // passes in a row that met an error
	cause     string               // of the last of them
	settled   bool
	damaged   string // why its record cannot be read: nothing of it is touched
}

// New makes a loop. Nothing happens before Load and Define.
func New(backend Backend, ledger Ledger, opts Options) *Loop {
	if opts.Workers <= 0 {
		opts.Workers = 4
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 8
	}
	if opts.Clock == nil {
		opts.Clock = systemClock
	}
	return &Loop{
		backend: backend, ledger: ledger, opts: opts, queue: newQueue(), jobs: map[repo.Key]*entry{}, widths: map[string]int{}, said: map[string]time.Time{},
		generation: 1, dirty: make(chan struct{}, 1), progress: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
}

// Load reads the records from the ledger and the runs from the backend: all
// that a daemon has to know to go on where another one stopped.
func (l *Loop) Load(ctx context.Context) error {
	sighted := l.sight(ctx)
	records, err := l.ledger.Load(ctx)
	if err != nil {
		return fmt.Errorf("load records: %w", err)
	}
	runs, err := l.backend.Runs(ctx)
	if err != nil {
		return fmt.Errorf("load runs: %w", err)
	}
	keys, err := l.backend.Jobs(ctx)
	if err != nil {
		return fmt.Errorf("load jobs: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		e := l.entry(records[i].Key())
		if e.damaged = records[i].Damaged; e.damaged == "" {
			e.record, e.published = records[i], &records[i]
		}
	}
	for i := range runs {
		e := l.entry(runs[i].Job.Key)
		e.runs = append(e.runs, runs[i])
	}
	for _, key := range keys {
		l.entry(key)
	}
	l.loaded, l.sighted = true, sighted
	return nil
}

// entry finds or makes a job's entry. The lock is held.
func (l *Loop) entry(key repo.Key) *entry {
	e := l.jobs[key]
	if e == nil {
		e = &entry{
			key: key, prepared: map[string]repo.Addresses{}, refused: map[string]string{}, troubles: map[string]string{},
			asked: map[string]time.Time{}, tails: map[string]string{},
		}
		l.jobs[key] = e
	}
	return e
}

// sorted are all entries by key. The lock is held.
func (l *Loop) sorted() []*entry {
	all := make([]*entry, 0, len(l.jobs))
	for _, e := range l.jobs {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(a.key.String(), b.key.String()) })
	return all
}

// changed notes that something is to be published. The lock is held.
func (l *Loop) changed() {
	l.generation++
	poke(l.dirty)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Records are the records as they are now, by key.
func (l *Loop) Records() []repo.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []repo.Record
	for _, e := range l.sorted() {
		if e.record.Phase != "" {
			out = append(out, e.record)
		}
	}
	return out
}

// Damaged says which jobs lie still because their records cannot be read.
func (l *Loop) Damaged() (why []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.damaged()
}

func (l *Loop) damaged() (why []string) {
	for _, e := range l.sorted() {
		if e.damaged != "" {
			why = append(why, e.damaged+"; nothing of this job is started until the file is mended or deleted, and the daemon started again")
		}
	}
	return why
}
