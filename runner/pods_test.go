package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// realPod is a pod as a real cluster wrote it, and what Trainyard makes of it.
type realPod struct {
	Name     string            `json:"name"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     corev1.PodSpec    `json:"spec"`
	Status   corev1.PodStatus  `json:"status"`
	Want     struct {
		State    string     `json:"state"`
		Waiting  string     `json:"waiting"`
		Class    repo.Class `json:"class"`
		Reason   string     `json:"reason"`
		Free     bool       `json:"free"`
		Message  string     `json:"message"`
		Restarts int32      `json:"restarts"`
		EndedAt  time.Time  `json:"endedAt"`
	} `json:"want"`
}

// realPods are all of testdata/pods.
func realPods(t *testing.T) (pods []realPod) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, doc := range strings.Split(string(text), "\n---\n")[1:] {
			var p realPod
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &p), "%s: %s", file, doc)
			pods = append(pods, p)
		}
	}
	require.Greater(t, len(pods), 50)
	return pods
}

// trainingJobRules are those that a TrainingJob is judged by: render/rules tests
// that this is what they are.
func trainingJobRules(t *testing.T) (rules []repo.FailureRule) {
	text, err := os.ReadFile("../render/rules/testdata/trainingjob.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &rules))
	return rules
}

func TestRealPods(t *testing.T) {
	job := trainJob("mnist", "d1", 2, 0)
	job.Rules, job.Roles[0].MainContainer = trainingJobRules(t), "train"
	for _, row := range realPods(t) {
		t.Run(row.Name, func(t *testing.T) {
			pod := ourPod(t)
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = row.Metadata.DeletionTimestamp, row.Metadata.DeletionGracePeriodSeconds
			pod.Spec, pod.Status = row.Spec, row.Status
			p, ok := podFacts(pod)
			require.True(t, ok)
			w, d := row.Want, &decision{now: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)}
			d.in.Now = d.now
			states := map[PodState]string{PodPending: "Pending", PodRunning: "Running", PodSucceeded: "Succeeded", PodFailed: "Failed"}
			assert.Equal(t, w.State, states[p.State])
			assert.Equal(t, w.Restarts, p.Restarts)
			assert.True(t, p.StartedAt.IsZero() || p.StartedAt.Year() == 2026, "started at %s, and used GPUs since", p.StartedAt)
			if !p.Ended() {
				assert.Equal(t, w.Waiting, d.waiting(&p))
				return
			}
			o, _ := d.outcome(&job, &job.Roles[0], &repo.TaskAttemptRecord{}, &p)
			assert.Equal(t, w.Class, o.Class)
			assert.Equal(t, w.Reason, o.Reason)
			assert.Equal(t, w.Free, o.Free)
			assert.Equal(t, w.Message, o.Message)
			assert.Equal(t, w.EndedAt, p.EndedAt.UTC())
			assert.Empty(t, p.Waiting)

			o, _ = d.outcome(&job, &job.Roles[0], &repo.TaskAttemptRecord{Stop: ReasonStopRequested}, &p)
			if w.Reason == ReasonPodDeleted {
				assert.Equal(t, repo.Stopped, o.Result, "when it was us who asked")
			}
		})
	}
}
