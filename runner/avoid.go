package runner

import (
	"slices"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// failedTwice are the nodes on which a task failed at least twice in its run,
// in the order of the second time. A failure that ended an earlier attempt of
// the run counts for every task, as any of them may meet that node next.
func (d *decision) failedTwice(t *repo.TaskRecord) (nodes []string) {
	once := map[string]bool{}
	count := func(attempts []repo.TaskAttemptRecord) {
		for i := range attempts {
			a := &attempts[i]
			switch {
			case a.Node == "" || a.Outcome == nil || !blamesNode(a.Outcome):
			case once[a.Node]:
				nodes = withNode(nodes, a.Node)
			default:
				once[a.Node] = true
			}
		}
	}
	for i := range d.rec.Attempts {
		before := &d.rec.Attempts[i]
		for j := range before.Tasks {
			if name := before.Tasks[j].Name; name == t.Name || name == before.Task {
				count(before.Tasks[j].Attempts)
			}
		}
	}
	count(t.Attempts)
	return nodes
}

// blamesNode says whether a failure can be due to the node it happened on. A
// pod that had to give way to another, or that somebody deleted, tells nothing.
func blamesNode(o *repo.Outcome) bool {
	if o.Result != repo.Failed {
		return false
	}
	switch o.Reason {
	case "Preempted", "PodPreemptedForCriticalPod", "PodExternalDeleted", "Disrupted", ReasonPodDeleted, ReasonPodLost, ReasonPodRefused:
		return false
	}
	return true
}

// withNode puts a node last in a list that keeps the latest few. The list given
// stays as it is.
func withNode(nodes []string, node string) []string {
	if slices.Contains(nodes, node) {
		return nodes
	}
	nodes = append(slices.Clip(nodes), node)
	return nodes[max(0, len(nodes)-repo.MaxAvoided):]
}

// keepsAwayFrom names the nodes that a task is not started on: without them it might.
func (d *decision) keepsAwayFrom(t *repo.TaskRecord) string {
	nodes := slices.Concat(d.rec.Run.AvoidNodes, t.AvoidNodes)
	slices.Sort(nodes)
	if len(nodes) == 0 {
		return ""
	}
	return " (keeps away from " + strings.Join(slices.Compact(nodes), ", ") + ")"
}
