package repo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
)

// Labels and annotations of every pod, and the finalizer that holds its outcome.
const (
	LabelManagedBy   = "app.kubernetes.io/managed-by" // always "trainyard"
	LabelEnvironment = "trainyard.dev/environment"
	LabelJob         = "trainyard.dev/job"
	LabelRun         = "trainyard.dev/run"
	LabelRole        = "trainyard.dev/role"
	LabelIndex       = "trainyard.dev/index"
	LabelRunAttempt  = "trainyard.dev/run-attempt"
	LabelAttempt     = "trainyard.dev/attempt" // of the task

	AnnotationRevision = "trainyard.dev/revision"
	AnnotationDigest   = "trainyard.dev/digest"
	// AnnotationOutput is set by a backend: when a container last wrote output (RFC 3339).
	AnnotationOutput = "trainyard.dev/last-output"
	// AnnotationTrouble is set by a backend: what is amiss around the pod.
	AnnotationTrouble = "trainyard.dev/trouble"
	// AnnotationAddress is where people reach a pod that outlives its run.
	AnnotationAddress = "trainyard.dev/address"

	ManagedBy = "trainyard"
	// Finalizer keeps a pod, and so its outcome, until the record of it has reached the remote.
	Finalizer = "trainyard.dev/record"
)

// Pod makes the pod of a task attempt: the role's template, named, labelled,
// held by the finalizer, with the rendezvous environment of its index. The same
// run, attempt and addresses give the same pod.
//
// The templates of Env may use .Job, .Namespace, .Run, .Role, .Index,
// .RunAttempt, .Attempt, .Pod, and the functions
//
//	host ROLE INDEX, port ROLE INDEX, address ROLE INDEX   of one task
//	addresses ROLE        JSON list of "host:port"
//	join SEP ROLE, hosts SEP ROLE   host:port, or host, of every task of a role
//	replicas ROLE, total  numbers of tasks
//	add A B, div A B, mod A B
func (r *Run) Pod(a TaskAttempt, addr Addresses) (*corev1.Pod, error) {
	role := r.Job.Role(a.Role)
	if role == nil {
		return nil, fmt.Errorf("stamp %s: run %s has no role %q", a.Task, r.ID, a.Role)
	}
	s := stamper{run: r, attempt: a, addr: addr}
	pod := &corev1.Pod{Spec: *role.Template.Spec.DeepCopy()}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name, pod.Namespace = PodName(r.ID, a), r.Job.Namespace
	// No owner, no finalizer, and nothing that is ours to say comes from a file.
	pod.Labels, pod.Annotations = WithoutReserved(role.Template.Labels), WithoutReserved(role.Template.Annotations)
	pod.Finalizers = []string{Finalizer}
	if pod.Spec.Hostname == "" {
		pod.Spec.Hostname = a.Task.String()
	}
	if pod.Spec.Subdomain == "" {
		pod.Spec.Subdomain = r.ID
	}
	if err := s.environment(pod, role.Env); err != nil {
		return nil, fmt.Errorf("stamp %s: %w", a.Task, err)
	}
	pod.Labels = merge(pod.Labels, map[string]string{
		LabelManagedBy: ManagedBy, LabelEnvironment: r.Environment, LabelJob: r.Job.Name, LabelRun: r.ID, LabelRole: a.Role,
		LabelIndex: itoa(a.Index), LabelRunAttempt: itoa(a.RunAttempt), LabelAttempt: itoa(a.Attempt),
	})
	pod.Annotations = merge(pod.Annotations, map[string]string{AnnotationRevision: r.Revision, AnnotationDigest: r.Job.Digest})
	if role.Outlives {
		pod.Annotations[AnnotationAddress] = addr(a.Task).String()
	}
	return pod, nil
}

// reserved begins the labels and annotations by which pods and objects are found
// and judged. LabelGPUClass alone says nothing but what a file asks for.
const reserved = "trainyard.dev/"

// WithoutReserved are the labels or annotations of a file without those that
// only Trainyard itself may set.
func WithoutReserved(from map[string]string) map[string]string {
	to := make(map[string]string, len(from))
	for k, v := range from {
		if k == LabelGPUClass || !strings.HasPrefix(k, reserved) && k != LabelManagedBy {
			to[k] = v
		}
	}
	return to
}

// AttemptOf reads back from a pod's labels which task attempt it is.
func AttemptOf(pod *corev1.Pod) (runID string, a TaskAttempt, ok bool) {
	number := func(label string) int32 {
		n, err := strconv.ParseInt(pod.Labels[label], 10, 32)
		if err != nil || n < 0 {
			ok = false
		}
		return int32(n)
	}
	ok = pod.Labels[LabelManagedBy] == ManagedBy && pod.Labels[LabelRun] != "" && pod.Labels[LabelRole] != ""
	a = TaskAttempt{Task: Task{Role: pod.Labels[LabelRole], Index: number(LabelIndex)}, RunAttempt: number(LabelRunAttempt), Attempt: number(LabelAttempt)}
	return pod.Labels[LabelRun], a, ok
}

type stamper struct {
	run     *Run
	attempt TaskAttempt
	addr    Addresses
}

// environment adds the role's variables, labels and annotations to the pod.
func (s *stamper) environment(pod *corev1.Pod, env Env) error {
	vars := append(s.common(), env.Vars...)
	values := make(map[string]string, len(vars))
	for i := range vars {
		if vars[i].ValueFrom != nil {
			continue
		}
		v, err := s.expand(vars[i].Value)
		if err != nil {
			return fmt.Errorf("variable %s: %w", vars[i].Name, err)
		}
		vars[i].Value, values[vars[i].Name] = v, v
	}
	if err := replace(pod, env.Placeholders, values); err != nil {
		return err
	}
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{{&pod.Labels, env.Labels}, {&pod.Annotations, env.Annotations}} {
		for k, t := range m.from {
			v, err := s.expand(t)
			if err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
			*m.to = merge(*m.to, map[string]string{k: v})
		}
	}
	for i := range pod.Spec.Containers {
		give(&pod.Spec.Containers[i], vars, env)
	}
	for i := range pod.Spec.InitContainers {
		if env.Init {
			give(&pod.Spec.InitContainers[i], vars, env)
		} else {
			give(&pod.Spec.InitContainers[i], vars[:commonVars], env)
		}
	}
	return nil
}

const commonVars = 8

// common are the variables that every container of every format is given.
func (s *stamper) common() []corev1.EnvVar {
	a := s.attempt
	return []corev1.EnvVar{
		{Name: "TRAINYARD_JOB", Value: s.run.Job.Name},
		{Name: "TRAINYARD_NAMESPACE", Value: s.run.Job.Namespace},
		{Name: "TRAINYARD_RUN_ID", Value: s.run.ID},
		{Name: "TRAINYARD_RUN_ATTEMPT", Value: itoa(a.RunAttempt)},
		{Name: "TRAINYARD_ROLE", Value: a.Role},
		{Name: "TRAINYARD_INDEX", Value: itoa(a.Index)},
		{Name: "TRAINYARD_TASK_ATTEMPT", Value: itoa(a.Attempt)},
		{Name: "TRAINYARD_PORT", Value: itoa(s.addr(a.Task).Port)},
	}
}

// give adds vars to a container: before its own variables, or behind them.
func give(c *corev1.Container, vars []corev1.EnvVar, env Env) {
	add := vars[:commonVars]
	if len(env.Containers) == 0 || contains(env.Containers, c.Name) {
		add = vars
	}
	if env.Last {
		own := append(append([]corev1.EnvVar{}, add[:commonVars]...), c.Env...)
		c.Env = append(own, add[commonVars:]...)
		return
	}
	c.Env = append(append([]corev1.EnvVar{}, add...), c.Env...)
}

// replace puts values for {{NAME}} anywhere in the pod, as FrameworkController does.
func replace(pod *corev1.Pod, names []string, values map[string]string) error {
	if len(names) == 0 {
		return nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	pairs := make([]string, 0, 2*len(names))
	for _, n := range names {
		quoted, err := json.Marshal(values[n])
		if err != nil {
			return err
		}
		pairs = append(pairs, "{{"+n+"}}", string(quoted[1:len(quoted)-1]))
	}
	*pod = corev1.Pod{}
	return json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), pod)
}

// expand runs one value's template.
func (s *stamper) expand(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New("").Option("missingkey=error").Funcs(s.funcs()).Parse(text)
	if err != nil {
		return "", err
	}
	a := s.attempt
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"Job": s.run.Job.Name, "Namespace": s.run.Job.Namespace, "Run": s.run.ID, "Role": a.Role, "Index": a.Index,
		"RunAttempt": a.RunAttempt, "Attempt": a.Attempt, "Pod": PodName(s.run.ID, a),
	})
	return b.String(), err
}

func (s *stamper) funcs() template.FuncMap {
	at := func(role string, index any) Address {
		n, _ := strconv.Atoi(fmt.Sprint(index))
		return s.addr(Task{Role: role, Index: int32(n)})
	}
	list := func(role string, text func(Address) string) []string {
		out := make([]string, 0, s.replicas(role))
		for i := range s.replicas(role) {
			out = append(out, text(s.addr(Task{Role: role, Index: i})))
		}
		return out
	}
	return template.FuncMap{
		"host":    func(role string, index any) string { return at(role, index).Host },
		"port":    func(role string, index any) int32 { return at(role, index).Port },
		"address": func(role string, index any) string { return at(role, index).String() },
		"addresses": func(role string) (string, error) {
			text, err := json.Marshal(list(role, Address.String))
			return string(text), err
		},
		"join": func(sep, role string) string { return strings.Join(list(role, Address.String), sep) },
		"hosts": func(sep, role string) string {
			return strings.Join(list(role, func(a Address) string { return a.Host }), sep)
		},
		"replicas": s.replicas,
		"total":    func() int { return s.run.Job.Tasks() },
		"add":      func(a, b any) (int, error) { return calculate(a, b, func(x, y int) int { return x + y }) },
		"div":      func(a, b any) (int, error) { return calculate(a, b, func(x, y int) int { return x / max(y, 1) }) },
		"mod":      func(a, b any) (int, error) { return calculate(a, b, func(x, y int) int { return x % max(y, 1) }) },
	}
}

func calculate(a, b any, with func(x, y int) int) (int, error) {
	x, err := strconv.Atoi(fmt.Sprint(a))
	if err != nil {
		return 0, err
	}
	y, err := strconv.Atoi(fmt.Sprint(b))
	if err != nil {
		return 0, err
	}
	return with(x, y), nil
}

func (s *stamper) replicas(role string) int32 {
	if r := s.run.Job.Role(role); r != nil {
		return r.Replicas
	}
	return 0
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// merge returns a with b's entries over it.
func merge(a, b map[string]string) map[string]string {
	if a == nil {
		a = make(map[string]string, len(b))
	}
	for k, v := range b {
		a[k] = v
	}
	return a
}
