package runner

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// world is everything outside Decide, as simple as it can be: pods that exist
// once they are asked for and end when a test says so, and a remote that has
// what was published last. Every call of Decide is checked against the laws
// in laws_test.go.
type world struct {
	t         require.TestingT
	now       time.Time
	key       repo.Key
	revision  int
	job       *repo.Job
	invalid   *repo.Invalid
	withheld  string
	forbidden string

	record    repo.Record
	published *repo.Record
	runs      []repo.Run
	pods      []*Pod // in the order of their creation
	hidden    map[string]bool
	refuse    map[string]string // what the backend says to a creation
	refused   map[string]string
	troubles  map[string]string
	node      string          // where pods get their place at once; "" is nowhere
	stubborn  bool            // pods go on after they were asked to end
	coarse    bool            // the backend tells times in whole seconds
	silent    map[string]bool // pods whose node does not answer: they end when they are given up
	nodes     int             // that pods are spread over; 0 is one

	accepted map[string]*Pod // every pod that ever was
	starts   []string        // accepted creations in their order: role-index/run attempt/attempt
	finished map[string]bool
	uid      int
	out      Output
}

// day is the morning on which every test begins.
var day = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// nextNode is where the next pod gets its place.
func (w *world) nextNode() string {
	if w.node == "" || w.nodes <= 1 {
		return w.node
	}
	return fmt.Sprint("node-", 1+w.uid%w.nodes)
}

func newWorld(t require.TestingT, job *repo.Job) *world {
	w := &world{
		t: t, now: day, node: "node-1", hidden: map[string]bool{}, silent: map[string]bool{}, refuse: map[string]string{}, refused: map[string]string{},
		troubles: map[string]string{}, accepted: map[string]*Pod{}, finished: map[string]bool{},
	}
	w.push(job)
	w.key = job.Key
	return w
}

// push makes job what the repository defines; nil removes it.
func (w *world) push(job *repo.Job) {
	w.revision++
	w.job, w.invalid, w.withheld = nil, nil, ""
	if job != nil {
		w.job = deepCopy(job)
	}
}

// edit pushes the present definition with a change.
func (w *world) edit(change func(*repo.Job)) {
	job := deepCopy(w.job)
	change(job)
	w.push(job)
}

func (w *world) input() Input {
	in := Input{
		Now: w.now, Environment: "default", Revision: fmt.Sprintf("r%d", w.revision), Key: w.key, Job: w.job, Invalid: w.invalid,
		Withheld: w.withheld, Forbidden: w.forbidden, Record: w.record, Published: w.published, Runs: w.runs,
		Refused: w.refused, Troubles: w.troubles,
	}
	for _, p := range w.pods {
		if !w.hidden[p.Name] {
			in.Pods = append(in.Pods, *p)
		}
	}
	return deepCopy(in)
}

// decide calls Decide, checks what it says and takes its record over.
func (w *world) decide() Output {
	in := w.input()
	before := deepCopy(in)
	out := Decide(in)
	require.True(w.t, reflect.DeepEqual(before, in), "Decide changed its input")
	w.check(in, out)
	w.record, w.out = out.Record, deepCopy(out)
	return w.out
}

// act decides and performs what was decided.
func (w *world) act() Output {
	out := w.decide()
	for _, a := range out.Actions {
		w.perform(a, out.Run)
	}
	return out
}

func (w *world) perform(a Action, run *repo.Run) {
	p := w.pod(a.Pod)
	if p != nil && a.UID != "" && a.UID != p.UID {
		return
	}
	switch a.Kind {
	case Create:
		w.create(a, run)
	case Delete:
		w.delete(p, a.Force)
	case Release:
		if p != nil {
			p.Held = false
			if !p.DeletedAt.IsZero() {
				w.remove(p)
			}
		}
	case Forget:
		w.runs = slices.DeleteFunc(w.runs, func(r repo.Run) bool { return r.ID == a.Run })
	}
}

func (w *world) create(a Action, run *repo.Run) {
	w.runs = append(slices.DeleteFunc(w.runs, func(r repo.Run) bool { return r.ID == run.ID }), *run)
	switch {
	case w.pod(a.Pod) != nil:
	case w.refuse[a.Pod] != "":
		w.refused[a.Pod] = w.refuse[a.Pod]
	default:
		w.uid++
		w.starts = append(w.starts, fmt.Sprintf("%s/%d/%d", a.Attempt.Task, a.Attempt.RunAttempt, a.Attempt.Attempt))
		p := &Pod{Name: a.Pod, UID: fmt.Sprint("u", w.uid), Run: a.Run, Attempt: a.Attempt, Held: true, CreatedAt: w.told(), Node: w.nextNode(), Gang: a.Gang}
		w.accepted[a.Pod] = p
		w.pods = append(w.pods, p)
	}
}

func (w *world) delete(p *Pod, force bool) {
	if p == nil {
		return
	}
	if p.DeletedAt.IsZero() {
		p.DeletedAt = w.told()
	}
	if !p.Ended() && (force || !w.stubborn && !w.silent[p.Name]) {
		w.endPod(p, 143)
	}
	if p.Ended() && !p.Held {
		w.remove(p)
	}
}

func (w *world) remove(p *Pod) {
	w.pods = slices.DeleteFunc(w.pods, func(q *Pod) bool { return q == p })
}

// told is the time as the backend tells it.
func (w *world) told() time.Time {
	if w.coarse {
		return w.now.Truncate(time.Second)
	}
	return w.now
}

func (w *world) endPod(p *Pod, code int32) {
	p.EndedAt, p.State = w.told(), PodSucceeded
	if code != 0 {
		p.State = PodFailed
		p.Failure.Ends = []End{{Container: "main", ExitCode: code, At: w.told()}}
	}
}

func (w *world) pod(name string) *Pod {
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// latest is the newest pod of a task (worker-0), which must exist.
func (w *world) latest(task string) *Pod {
	var found *Pod
	for _, p := range w.pods {
		if p.Attempt.Task.String() == task {
			found = p
		}
	}
	require.NotNil(w.t, found, "task %s has no pod", task)
	return found
}

// start lets the newest pods of tasks run.
func (w *world) start(tasks ...string) {
	for _, task := range tasks {
		p := w.latest(task)
		p.State, p.StartedAt = PodRunning, w.told()
	}
}

// end lets the newest pod of a task end by itself.
func (w *world) end(task string, code int32) {
	p := w.latest(task)
	require.False(w.t, p.Ended(), "%s has ended before", p.Name)
	if p.StartedAt.IsZero() {
		p.StartedAt = p.CreatedAt
	}
	w.endPod(p, code)
}

// publish brings the record to the remote: what a reader of its files sees.
func (w *world) publish() {
	w.record.Fold(w.record.Runs())
	w.published = viaFiles(w.t, w.record)
}

// kill is what is left when the daemon is killed and started again.
func (w *world) kill() {
	w.record = repo.Record{}
	if w.published != nil {
		w.record = deepCopy(*w.published)
	}
	w.refused, w.troubles = map[string]string{}, map[string]string{}
}

func (w *world) sleep(d time.Duration) { w.now = w.now.Add(d) }

// settle acts and publishes until nothing more comes of it at this time.
func (w *world) settle() Output {
	for range 200 {
		record := w.record
		out := w.act()
		if len(out.Actions) == 0 && reflect.DeepEqual(record, out.Record) && w.isPublished() {
			return out
		}
		w.publish()
	}
	require.Fail(w.t, "does not settle")
	return Output{}
}

func (w *world) isPublished() bool {
	return w.published != nil && reflect.DeepEqual(viaFiles(w.t, w.record), w.published)
}

// live are the tasks with a pod that has not ended, in the order of creation.
func (w *world) live() []string {
	out := []string{}
	for _, p := range w.pods {
		if !p.Ended() {
			out = append(out, p.Attempt.Task.String())
		}
	}
	return out
}

// task is the record of worker-0, say.
func (w *world) task(name string) *repo.TaskRecord {
	for i := range w.record.Roles {
		for j := range w.record.Roles[i].Tasks {
			if t := &w.record.Roles[i].Tasks[j]; t.Name == name {
				return t
			}
		}
	}
	require.Fail(w.t, "no task "+name)
	return nil
}

// kinds are the actions of an output in short: "create worker-0/0/1".
func kinds(out Output) []string {
	names := map[ActionKind]string{Create: "create", Delete: "delete", Release: "release", Forget: "forget"}
	list := []string{}
	for _, a := range out.Actions {
		switch {
		case a.Kind == Create:
			list = append(list, fmt.Sprintf("create %s/%d/%d", a.Attempt.Task, a.Attempt.RunAttempt, a.Attempt.Attempt))
		case a.Force:
			list = append(list, "force "+a.Pod)
		case a.Pod != "":
			list = append(list, names[a.Kind]+" "+a.Pod)
		default:
			list = append(list, names[a.Kind]+" "+a.Run)
		}
	}
	return list
}

// viaFiles is a record after it was written to its files and read again.
func viaFiles(t require.TestingT, r repo.Record) *repo.Record {
	type file struct {
		Record  repo.Record
		History []repo.RunSummary
	}
	text, err := json.Marshal(file{r, r.History})
	require.NoError(t, err)
	var f file
	require.NoError(t, json.Unmarshal(text, &f))
	f.Record.History, f.Record.Past = f.History, r.Past
	return utc(&f.Record)
}

// utc puts every time of x, which must be a pointer, into UTC, as a record has it.
func utc[T any](x *T) *T {
	walk(reflect.ValueOf(x).Elem(), func(v reflect.Value) {
		if t, ok := v.Addr().Interface().(*time.Time); ok && !t.IsZero() {
			*t = t.UTC()
		}
	})
	return x
}

// walk calls f for every settable value below v.
func walk(v reflect.Value, f func(reflect.Value)) {
	if !v.CanSet() {
		return
	}
	f(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), f)
		}
	}
}

// deepCopy shares nothing with x.
func deepCopy[T any](x T) T {
	v := reflect.ValueOf(&x).Elem()
	out := reflect.New(v.Type()).Elem()
	copyInto(out, v)
	return out.Interface().(T)
}

func copyInto(to, from reflect.Value) {
	to.Set(from)
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyInto(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				copyInto(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for _, k := range from.MapKeys() {
				e := reflect.New(from.Type().Elem()).Elem()
				copyInto(e, from.MapIndex(k))
				to.SetMapIndex(k, e)
			}
		}
	case reflect.Struct:
		for i := range from.NumField() {
			if to.Field(i).CanSet() {
				copyInto(to.Field(i), from.Field(i))
			}
		}
	}
}
