package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// crashJob is a job with what has to become of it, whatever is killed meanwhile.
type crashJob struct {
	name  string
	phase repo.Phase
	file  string // of the job, from the checkout
	edit  string // what the file becomes some time, "" if it stays
	goes  bool   // its file is removed some time
}

// crashKinds are what a job is like, by name.
var crashKinds = []string{"plain", "retry", "stop", "init", "fail", "unit", "serve", "again", "change", "gang", "remove"}

// marked is a shell command that does something and leaves marks: a line when
// it starts, a line with its exit code when it ends. A process of an earlier
// attempt of its task that still lives is marked too; what is dead and was
// buried by nobody does not live. It has the exit code in $code.
func (x *crashWorld) marked(container, command string) string {
	return fmt.Sprintf(`cd %[1]s; me="$TRAINYARD_JOB $TRAINYARD_RUN_ID $TRAINYARD_RUN_ATTEMPT $TRAINYARD_ROLE $TRAINYARD_INDEX $TRAINYARD_TASK_ATTEMPT %[2]s"
live=live-$TRAINYARD_JOB-$TRAINYARD_ROLE-$TRAINYARD_INDEX-%[2]s
if [ -e $live ] && read old < $live && kill -0 $old 2>/dev/null && ! grep -qs '^State:.Z' /proc/$old/status; then echo "beside $me" >> marks; fi
echo $$$$ > $live; echo "start $me" >> marks; echo "said by $me"; code=0
%[3]s
echo "end $me $code" >> marks; exit $code`, x.dir, container, command)
}

// crashText is a job file: the spec before its roles, and for each role its own
// lines and what its container does.
func (x *crashWorld) crashText(name, spec string, roles ...[2]string) string {
	text := fmt.Sprintf("apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: %s}\nspec:\n  cleanup: {pods: All, after: 0s}\n%s  roles:\n", name, spec)
	for i, r := range roles {
		text += fmt.Sprintf("  - name: role%d\n%s    template:\n      spec:\n        terminationGracePeriodSeconds: 1\n        containers:\n        - name: main\n          command: [sh, -c, %q]\n",
			i, r[0], x.marked("main", r[1]))
	}
	return text
}

const (
	quickly   = "{limit: 1, backoff: {initial: 10ms}}"
	forever   = "sleep 1000"
	taskWrong = "[ $TRAINYARD_TASK_ATTEMPT -ge 1 ] || code=42"
	runWrong  = "[ $TRAINYARD_RUN_ATTEMPT -ge 1 ] || code=42"
)

// add puts a job of a kind into the checkout.
func (x *crashWorld) add(kind string) {
	j := &crashJob{name: fmt.Sprintf("%s-%d", kind, len(x.jobs)), phase: repo.PhaseSucceeded}
	j.file = "jobs/" + j.name + ".yaml"
	text := func(spec string, roles ...[2]string) string { return x.crashText(j.name, spec, roles...) }
	file := ""
	switch kind {
	case "plain":
		file = text("", [2]string{"", "true"})
	case "retry":
		file = text("", [2]string{"    retry: " + quickly + "\n", taskWrong})
	case "again":
		file = text("  retry: "+quickly+"\n", [2]string{"", runWrong})
	case "fail":
		j.phase, file = repo.PhaseFailed, text("", [2]string{"", "code=3"})
	case "gang":
		file = text("  gang: true\n", [2]string{"    replicas: 2\n", "true"})
	case "serve":
		file = text("", [2]string{"", "sleep 0.1"}, [2]string{"    daemon: true\n", forever})
	case "init":
		file = text("", [2]string{"", "true"}) + fmt.Sprintf("        initContainers:\n        - {name: first, command: [sh, -c, %q]}\n", x.marked("first", "true"))
	case "stop":
		file, j.phase = text("", [2]string{"", forever}), repo.PhaseStopped
		j.edit = text("  stop: true\n", [2]string{"", forever})
	case "change":
		file, j.edit = text("  onChange: Restart\n", [2]string{"", forever}), text("  onChange: Restart\n", [2]string{"", "true"})
	case "remove":
		file, j.phase, j.goes = text("", [2]string{"", forever}), repo.PhaseRemoved, true
	case "unit":
		j.file = "jobs/" + j.name + "/job.yaml"
		file = text("", [2]string{"", "echo $WORD"}) + "          envFrom: [{configMapRef: {name: words}}]\n"
		x.write("jobs/"+j.name+"/kustomization.yaml", "resources: [job.yaml]\nconfigMapGenerator: [{name: words, literals: [WORD=hello]}]\n")
	}
	x.write(j.file, file)
	x.jobs = append(x.jobs, j)
}

// change makes the edits of the jobs that are older than the latest few.
func (x *crashWorld) change(but int) {
	for _, j := range x.jobs[:max(0, len(x.jobs)-but)] {
		switch {
		case j.edit != "":
			x.write(j.file, j.edit)
		case j.goes:
			if err := os.Remove(filepath.Join(x.checkout, j.file)); err != nil {
				x.t.Fatal(err)
			}
		}
		j.edit, j.goes = "", false
	}
}

// mark is a line that a container left.
type mark struct {
	what, job, pod, task, container string
	code                            string // of an end
}

// marks are all lines that containers left, oldest first.
func (x *crashWorld) marks() (all []mark) {
	text, err := os.ReadFile(filepath.Join(x.dir, "marks"))
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 8 {
			x.t.Fatalf("a mark is cut short: %q", line)
		}
		m := mark{what: f[0], job: f[1], task: f[1] + "/" + f[4] + "-" + f[5], container: f[7], pod: fmt.Sprintf("%s-%s-%s-%s-%s", f[2], f[4], f[5], f[3], f[6])}
		if m.what == "end" {
			m.code = f[8]
		}
		all = append(all, m)
	}
	return all
}
