package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// chaosJob is a job with what has to become of it, whatever happens meanwhile.
type chaosJob struct {
	name  string
	text  string // its file
	edit  string // what the file becomes some time, "" if it stays
	phase repo.Phase
	code  int32 // the only exit code that its tasks may be blamed for
	// accountable retries of each task, and of the whole run.
	ofTask, ofRun int32
	overlap       bool // a retry may run beside a pod whose node is silent
	stays         bool // its pods that have ended are kept
	goes          bool // its file is removed some time
}

// podSpec of a simulated task that leaves a silent node soon.
const podSpec = `spec:
  terminationGracePeriodSeconds: 1
  tolerations:
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
  containers: [{name: tensorflow, image: example/train:1, command: [train]}]
`

// template of pods that exit with a code, or never with a negative one.
func (w *onCluster) template(indent string, code int, runFor string) string {
	text := podSpec
	if w.real != nil {
		text = w.real.podSpec(code, runFor)
	} else if code >= 0 {
		text = fmt.Sprintf("metadata: {annotations: {simulate.trainyard.dev/exit-code: %q, simulate.trainyard.dev/run-for: %s}}\n", fmt.Sprint(code), runFor) + podSpec
	}
	return indent + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+indent) + "\n"
}

// chaosJobs are some of every kind, of a seed.
func (w *onCluster) chaosJobs(rng *rand.Rand, n int) []*chaosJob {
	kinds := []func(j *chaosJob, runFor func() string){
		w.plainJob, w.budgetJob, w.ownFormatJob("  cleanup: {pods: None}\n"), w.daemonRoleJob, w.againJob, w.gangJob, w.editedJob("Restart"),
		w.overlapJob, w.frameworkJob, w.permanentJob, w.tfJob, w.removedJob, w.editedJob("Finish"), w.failingFrameworkJob,
		w.ownFormatJob("  cleanup: {pods: Running}\n"),
	}
	jobs := make([]*chaosJob, n)
	for i := range jobs {
		j := &chaosJob{name: fmt.Sprintf("job-%02d", i), phase: repo.PhaseSucceeded}
		kinds[i%len(kinds)](j, func() string { return fmt.Sprintf("%dms", 500+rng.IntN(6000)) })
		jobs[i] = j
	}
	return jobs
}

// own is a job in our own format, of one role and what else is said.
func (w *onCluster) own(name, spec, role string, replicas, code int, runFor string) string {
	return fmt.Sprintf(`apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: %s, namespace: %s}
spec:
%s  roles:
  - name: worker
    replicas: %d
%s    template:
%s`, name, w.namespace, spec, replicas, role, w.template("      ", code, runFor))
}

func (w *onCluster) plainJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "  cleanup: {pods: All}\n", "", 3, 0, runFor())
}

func (w *onCluster) ownFormatJob(spec string) func(*chaosJob, func() string) {
	return func(j *chaosJob, runFor func() string) {
		j.text, j.stays = w.own(j.name, spec, "", 2, 0, runFor()), true
	}
}

func (w *onCluster) budgetJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "  retry: {limit: 0}\n", "    retry: {limit: 2, backoff: {initial: 1s}}\n", 1, 7, runFor())
	j.phase, j.code, j.ofTask = repo.PhaseFailed, 7, 2
}

func (w *onCluster) againJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "  retry: {limit: 1, backoff: {initial: 1s}}\n", "", 1, 7, runFor())
	j.phase, j.code, j.ofRun = repo.PhaseFailed, 7, 1
}

func (w *onCluster) permanentJob(j *chaosJob, runFor func() string) {
	spec := "  retry: {limit: 3}\n  failureRules: [{exitCodes: [42], class: Permanent}]\n"
	j.text = w.own(j.name, spec, "    retry: {limit: 3}\n", 1, 42, runFor())
	j.phase, j.code = repo.PhaseFailed, 42
}

func (w *onCluster) daemonRoleJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "", "", 2, 0, runFor()) + "  - name: ps\n    daemon: true\n    template:\n" + w.template("      ", -1, "")
}

func (w *onCluster) gangJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "  gang: true\n", "", 3, 0, runFor())
}

func (w *onCluster) overlapJob(j *chaosJob, runFor func() string) {
	j.text = w.own(j.name, "", "    forceDeleteAfter: 2s\n", 2, 0, runFor())
	j.overlap = true
}

func (w *onCluster) editedJob(onChange string) func(*chaosJob, func() string) {
	return func(j *chaosJob, runFor func() string) {
		spec := "  onChange: " + onChange + "\n"
		j.text = w.own(j.name, spec, "", 1, 0, "9s")
		j.edit = w.own(j.name, spec, "", 2, 0, runFor())
	}
}

func (w *onCluster) removedJob(j *chaosJob, _ func() string) {
	j.text = w.own(j.name, "", "", 2, -1, "")
	j.phase, j.goes = repo.PhaseRemoved, true
}

func (w *onCluster) framework(name string, replicas, code int, runFor string) string {
	return fmt.Sprintf(`apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
metadata: {name: %s, namespace: %s}
spec:
  executionType: Start
  retryPolicy: {fancyRetryPolicy: true, maxRetryCount: 0}
  taskRoles:
  - name: worker
    taskNumber: %d
    frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceededTaskCount: %d}
    task:
      retryPolicy: {fancyRetryPolicy: true, maxRetryCount: 1}
      pod:
%s`, name, w.namespace, replicas, replicas, w.template("        ", code, runFor))
}

func (w *onCluster) frameworkJob(j *chaosJob, runFor func() string) {
	j.text = w.framework(j.name, 2, 0, runFor())
}

func (w *onCluster) failingFrameworkJob(j *chaosJob, runFor func() string) {
	j.text = w.framework(j.name, 1, 7, runFor())
	j.phase, j.code, j.ofTask = repo.PhaseFailed, 7, 1
}

func (w *onCluster) tfJob(j *chaosJob, runFor func() string) {
	j.text = fmt.Sprintf("apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: %s, namespace: %s}\nspec:\n  replicaSpecs:\n", j.name, w.namespace)
	for _, r := range []struct {
		kind string
		code int
	}{{"MASTER", 0}, {"WORKER", 0}, {"PS", -1}} {
		pods := strings.Replace(w.template("      ", r.code, runFor()), "spec:\n", "spec:\n        restartPolicy: OnFailure\n", 1)
		j.text += fmt.Sprintf("  - replicas: 1\n    tfReplicaType: %s\n    template:\n%s", r.kind, pods)
	}
}
