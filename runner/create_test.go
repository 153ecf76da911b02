package runner

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	repo "github.com/trainyard/trainyard/repo-layout"
)

var pods = schema.GroupResource{Resource: "pods"}

func forbidden(why string) error { return apierrors.NewForbidden(pods, "p", errors.New(why)) }

// answered is an answer of an API server that has no constructor.
func answered(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func TestRefusals(t *testing.T) {
	terminating := forbidden("unable to create new content in namespace nlp because it is being terminated").(*apierrors.StatusError)
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	denied := `admission webhook "policy.example.org" denied the request: `
	for _, row := range []struct {
		what  string
		err   error
		final bool
	}{
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		{"bad request", apierrors.NewBadRequest("pod in version \"v1\" cannot be handled as a Pod"), true},
		{"versions in flux", apierrors.NewBadRequest("the object provided is unrecognized (must be of type Pod)"), false},
		{"too large", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		{"too large for etcd", answered(500, metav1.StatusReasonUnknown, "etcdserver: request is too large"), true},
		{"quota", forbidden("exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10"), false},
		{"quota that is not counted yet", forbidden("status unknown for quota: q, resources: pods"), false},
		{"quota that has to be there", forbidden("insufficient quota to consume: requests.nvidia.com/gpu"), false},
		{"quota that wants a request", forbidden("failed quota: q: must specify limits.cpu for: train"), true},
		{"pod security", forbidden(`violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`), true},
		{"limits", forbidden("maximum cpu usage per Container is 2, but limit is 4"), true},
		{"no such priority", forbidden("no PriorityClass with name high was found"), true},
		{"no service account yet", forbidden(`error looking up service account nlp/default: serviceaccount "default" not found`), false},
		{"namespace that goes", terminating, false},
		{"namespace that goes, by its words", forbidden("unable to create new content in namespace nlp because it is being terminated"), false},
		{"namespace that is not there", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "nlp"), false},
		{"what the daemon may not do", forbidden(`User "system:serviceaccount:trainyard:daemon" cannot create resource "pods" in API group "" in the namespace "nlp"`), false},
		{"who the daemon is", apierrors.NewUnauthorized("token has expired"), false},
		{"webhook denies", answered(403, metav1.StatusReasonForbidden, denied+"no image of this registry"), true},
		{"webhook denies in words of others", answered(403, metav1.StatusReasonForbidden, denied+`exceeded quota; User "x" cannot create resource "y"`), true},
		{"webhook denies without a reason", answered(400, "", denied), true},
		{"webhook denies as a conflict", answered(409, metav1.StatusReasonConflict, denied), true},
		{"webhook has a bug", answered(500, metav1.StatusReasonInternalError, denied+"nil pointer"), false},
		{"webhook is busy", answered(429, metav1.StatusReasonTooManyRequests, denied+"later"), false},
		{"webhook cannot be reached", apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.org": connection refused`)), false},
		{"policy denies", answered(422, metav1.StatusReasonInvalid, `ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no`), true},
		{"conflict", apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "q", errors.New("modified")), false},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), false},
		{"timeout", apierrors.NewTimeoutError("later", 1), false},
		{"unavailable", apierrors.NewServiceUnavailable("later"), false},
		{"network", errors.New("dial tcp: connection refused"), false},
	} {
		assert.Equal(t, row.final, isFinal(row.err), row.what)
		assert.Equal(t, row.final, isFinal(fmt.Errorf("create pod nlp/p: %w", row.err)), "%s, wrapped", row.what)
		assert.NotEmpty(t, refusal(row.err), row.what)
	}
	assert.Equal(t, `pods "p" is forbidden: exceeded quota: q`, refusal(fmt.Errorf("create: %w", forbidden("exceeded quota: q"))), "the server's own words")
	assert.Equal(t, http.StatusForbidden, statusCode(forbidden("no")))
}

// room lets that many pods be made, and says to the others what a quota does.
func (m *memory) room(n int) {
	m.quota = n
	m.answer = func(*corev1.Pod) error { return nil }
}

// A quota of 10 is not met by 500 refusals, and stops nothing for ever.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		m.room(10)
		l := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
		require.NoError(t, l.Load(t.Context()))
		job := trainJob("a", "d1", 500, 0)
		l.Define(time.Now(), definitions(job))
		l.Reconcile(t.Context(), time.Now(), job.Key)
		require.Len(t, m.creates, 10)
		require.LessOrEqual(t, len(m.asked), 10+8, "the rest was not tried in this pass")
		require.LessOrEqual(t, m.most, 8)
		l.Reconcile(t.Context(), time.Now(), job.Key)
		require.LessOrEqual(t, len(m.asked), 10+8+1, "and the next begins with one")
		waiting := 0
		for _, task := range l.Records()[0].Roles[0].Tasks {
			if strings.Contains(task.Attempts[0].Waiting, "exceeded quota: q") {
				waiting++
			}
			require.Nil(t, task.Attempts[0].Outcome)
		}
		require.Equal(t, 490, waiting, "every task says what it waits for")

		m.room(500)
		for range 3 {
			l.Reconcile(t.Context(), time.Now(), job.Key)
		}
		require.Len(t, m.creates, 500)
		require.Equal(t, 8, m.most)
		require.Empty(t, l.Records()[0].Message)
	})
}

// Creations begin one at a time.
func TestSlowStart(t *testing.T) {
	l := New(newMemory(t.Context(), nil), newLedger(), Options{Log: zerolog.Nop(), Parallel: 4})
	w := l.window("nlp")
	var widths []int
	for range 5 {
		require.True(t, w.enter())
		w.leave(nil)
		widths = append(widths, w.width)
	}
	require.Equal(t, []int{2, 3, 4, 4, 4}, widths)
	require.True(t, w.enter())
	require.True(t, w.enter())
	w.leave(errors.New("away"))
	require.False(t, w.enter())
	w.leave(nil)
	require.Equal(t, 1, w.width, "the next begins anew")
	require.EqualError(t, w.trouble, "away")
}

// Where creations went well the next job's begin as many at a time, and one at
// a time in another namespace.
func TestCreationsStayWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 })
		m.answer = func(*corev1.Pod) error { return nil }
		l := New(m, newLedger(), Options{Environment: "default", Log: zerolog.Nop(), Parallel: 4})
		require.NoError(t, l.Load(t.Context()))
		jobs := []repo.Job{trainJob("a", "d1", 8, 0), trainJob("b", "d1", 4, 0), trainJob("c", "d1", 2, 0)}
		jobs[2].Namespace = "another"
		l.Define(time.Now(), definitions(jobs...))
		for i, took := range []time.Duration{3, 1, 2} { // milliseconds: 1+2+4+1 at a time, 4, and 1+1
			began := time.Now()
			l.Reconcile(t.Context(), began, jobs[i].Key)
			require.LessOrEqual(t, time.Since(began), (took+1)*time.Millisecond, jobs[i].Name)
			require.GreaterOrEqual(t, time.Since(began), took*time.Millisecond, jobs[i].Name)
		}
	})
}

// A pod that is refused harms no other job, and only its own tasks.
func TestOneRefusedJobHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		m.answer = func(p *corev1.Pod) error {
			switch job := p.Labels[repo.LabelJob]; {
			case job == "refused":
				return forbidden(`violates PodSecurity "baseline:latest": hostPath volumes`)
			case job == "partly" && p.Labels[repo.LabelIndex] == "3":
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, p.Name, nil)
			}
			return nil
		}
		partly := trainJob("partly", "d3", 5, 2)
		partly.Roles[0].MinFailed, partly.Roles[0].MinSucceeded = repo.Never, 4
		once(t, m, led, definitions(trainJob("good", "d1", 3, 0), trainJob("refused", "d2", 20, 5), partly))
		record := func(name string) repo.Record { return led.records[repo.Key{Namespace: "default", Name: name}] }
		require.Equal(t, repo.PhaseSucceeded, record("good").Phase)
		require.Equal(t, repo.PhaseFailed, record("refused").Phase)
		require.Equal(t, ReasonPodRefused, record("refused").Reason)
		require.Contains(t, record("refused").Message, "hostPath volumes")
		require.Equal(t, repo.PhaseSucceeded, record("partly").Phase)
		require.Equal(t, repo.TaskFailed, record("partly").Roles[0].Tasks[3].Phase)
	})
}

// twoRoles is a job of two roles.
func twoRoles(name string) repo.Job {
	job := trainJob(name, name, 3, 0)
	ps := job.Roles[0]
	ps.Name, ps.Daemon, ps.MinSucceeded = "ps", true, repo.Never
	job.Roles = append(job.Roles, ps)
	return job
}

func TestRehearsal(t *testing.T) {
	for _, row := range []struct {
		what    string
		says    error
		phase   repo.Phase
		creates bool
	}{
		{"the cluster would take them", nil, repo.PhaseRunning, true},
		{"it would not: nothing starts", forbidden(`violates PodSecurity "baseline:latest": hostPath volumes`), repo.PhaseFailed, false},
		{"it cannot be asked: the attempt waits", errors.New("connection refused"), repo.PhasePending, false},
		{"a webhook cannot rehearse: tried for real", apierrors.NewBadRequest(`admission webhook "x" does not support dry run`), repo.PhaseRunning, true},
		{"a daemon before it made one", apierrors.NewAlreadyExists(pods, "p"), repo.PhaseRunning, true},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
				m.unrehearsed = row.says
				m.script = func(a repo.TaskAttempt) int32 { // one task is tried again, in a later pass
					if a.Task.String() == "ps-1" && a.Attempt == 0 {
						return 1
					}
					return -1
				}
				job := twoRoles("a")
				job.Roles[1].Retry.Limit = 1
				s := keepRunning(t, m, led, Options{Log: zerolog.Nop()}, definitions(job))
				rec := s.loop.Records()[0]
				require.Equal(t, row.phase, rec.Phase)
				require.Equal(t, row.creates, len(m.creates) > 0)
				require.Contains(t, m.rehearsed[0], "-main-0-0-0")
				require.Contains(t, m.rehearsed[1], "-ps-0-0-0")
				if row.creates {
					require.Len(t, m.creates, 7)
					require.Equal(t, 1, m.prepared, "once for an attempt")
					require.Len(t, m.rehearsed, 2)
					return
				}
				require.Contains(t, rec.Message, refusal(row.says))
				m.mu.Lock()
				m.unrehearsed = nil
				m.mu.Unlock()
				require.True(t, sleep(s.ctx, time.Minute, nil))
				synctest.Wait()
				require.Equal(t, row.phase == repo.PhasePending, len(m.creates) == 7)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return 0 }), newLedger()
		once(t, m, led, definitions(trainJob("a", "d1", 3, 0)))
		require.Empty(t, m.rehearsed, "of one role the first pod tells as much")
	})
}

func TestAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(a repo.TaskAttempt) int32 { return 3 * max(0, 2-a.RunAttempt) / (2 - min(1, a.RunAttempt)) }), newLedger()
		job := trainJob("a", "d1", 1, 1)
		job.Retry.Limit = 2
		job.Rules = []repo.FailureRule{{Name: "Three", ExitCodes: codes(3, 3), Class: repo.Transient}}
		once(t, m, led, definitions(job))
		id := led.records[job.Key].Run.ID
		words := func(at int, rest string) string {
			return fmt.Sprintf("default/%s-main-0-%d-%d %s", id, at/2, at%2, rest)
		}
		failed := `: container "main" exited with code 3`
		require.Len(t, m.told, 5)
		require.Contains(t, m.told[0], words(0, "true Failed: Three, Transient, retried"))
		require.Contains(t, m.told[0], failed)
		require.Equal(t, words(1, "true Failed: Three, Transient, retried with the whole run"+failed), m.told[1])
		require.Equal(t, words(4, "false Succeeded: Completed"), m.told[4])
	})
}

// What a rule or a second failure says of a node reaches the pod.
func TestAvoidedNodesReachThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(a repo.TaskAttempt) int32 { return max(0, 3-a.Attempt) }), newLedger()
		job := trainJob("a", "d1", 1, 5)
		job.Rules = []repo.FailureRule{{ExitCodes: codes(1, 1), Class: repo.Transient, AvoidNode: true}}
		once(t, m, led, definitions(job))
		require.Len(t, m.creates, 4)
		affinity := func(n int) *corev1.Affinity { return m.pods[m.creates[n]].Spec.Affinity }
		require.Nil(t, affinity(0))
		require.Nil(t, affinity(1), "it has failed there once")
		require.Nil(t, affinity(2).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		require.Len(t, affinity(2).NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
		require.Len(t, affinity(3).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, 1)
		rec := led.records[job.Key]
		require.Equal(t, []string{"node-1"}, rec.Run.AvoidNodes)
		require.Equal(t, []string{"node-1"}, rec.Roles[0].Tasks[0].AvoidNodes)
	})
}

// TestDeletedPreparationIsMadeAgain: somebody deleted what a run's pods need
// after it was prepared.
func TestDeletedPreparationIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, led := newMemory(t.Context(), func(repo.TaskAttempt) int32 { return -1 }), newLedger()
		l := New(m, led, Options{Environment: "default", Log: zerolog.Nop()})
		require.NoError(t, l.Load(t.Context()))
		job := trainJob("a", "d1", 2, 0)
		l.Define(time.Now(), definitions(job))
		m.answer = func(*corev1.Pod) error {
			return fmt.Errorf("the run's config map: %w", apierrors.NewNotFound(corev1.Resource("configmaps"), "a"))
		}
		l.Reconcile(t.Context(), time.Now(), job.Key)
		require.Empty(t, m.creates)
		require.Len(t, m.runs, 1)
		clear(m.runs)
		m.answer = nil
		l.Reconcile(t.Context(), time.Now(), job.Key)
		require.Len(t, m.creates, 2)
		require.Len(t, m.runs, 1, "prepared again")
	})
}
