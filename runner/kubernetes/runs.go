package kubernetes

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const (
	// runKey of a run's config map holds its definition.
	runKey = "run.json.gz"
	// maxRun bounds what is unpacked.
	maxRun = 64 << 20
)

// Prepare makes what an attempt of a run needs around its pods: a config map
// with the run's definition, which owns all the rest; the unit's objects; a
// headless service by which its tasks find each other, which follows soon when
// the run is new.
func (b *Backend) Prepare(ctx context.Context, run *repo.Run, attempt int32) (repo.Addresses, error) {
	if err := b.served(run.Job.Namespace); err != nil {
		return nil, err
	}
	ctx, free, err := b.write(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	owner, fresh, err := b.keep(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	known := knownRun{key: run.Job.Key, owner: owner, prepared: time.Now(), checked: time.Now(), progress: run.Job.ProgressDeadline, attempt: attempt}
	addr := addresses(run)
	// No names lead anywhere yet when a run is new: its service can wait. Later
	// ones must not lead to pods of an attempt that is ending.
	if known.bare = fresh && attempt == 0; !known.bare {
		if err := b.service(ctx, b.serviceOf(run.ID, known)); err != nil {
			return nil, fmt.Errorf("prepare run %s: service: %w", run.ID, err)
		}
	}
	objects, err := run.Objects(attempt, addr)
	if err != nil {
		return nil, fmt.Errorf("prepare run %s: %w", run.ID, err)
	}
	for _, o := range objects {
		if err := b.apply(ctx, run, owner, o); err != nil {
			return nil, fmt.Errorf("prepare run %s: %s %s: %w", run.ID, o.Kind, o.Name, err)
		}
	}
	if known.gang, err = b.gather(ctx, run); err != nil {
		return nil, fmt.Errorf("prepare run %s: gang: %w", run.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[run.ID] = known
	if known.bare {
		b.wakeTender()
	}
	return addr, nil
}

// addresses are names that the cluster's DNS knows by the run's service,
// whatever pod the task has now.
func addresses(run *repo.Run) repo.Addresses {
	return func(t repo.Task) repo.Address {
		host, subdomain, port := t.String(), run.ID, int32(0)
		if role := run.Job.Role(t.Role); role != nil {
			host, subdomain = cmp.Or(role.Template.Spec.Hostname, host), cmp.Or(role.Template.Spec.Subdomain, subdomain)
			port = role.Port
		}
		return repo.Address{Host: host + "." + subdomain, Port: port}
	}
}

// keep stores the run's definition and returns the UID of what it is stored in.
// fresh says that it was not there before.
func (b *Backend) keep(ctx context.Context, run *repo.Run) (owner types.UID, fresh bool, err error) {
	packed, err := b.pack(run)
	if err != nil {
		return "", false, err
	}
	maps := b.client.CoreV1().ConfigMaps(run.Job.Namespace)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: run.ID, Namespace: run.Job.Namespace, Labels: b.runLabels(run.ID, run.Job.Key)},
		BinaryData: map[string][]byte{runKey: packed},
	}
	made, err := maps.Create(ctx, want, metav1.CreateOptions{FieldManager: manager})
	if err == nil {
		return made.UID, true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", false, err
	}
	there, err := maps.Get(ctx, run.ID, metav1.GetOptions{})
	if err != nil {
		return "", false, err
	}
	switch {
	case b.others(there.Labels, want.Labels) != "":
		return "", false, fmt.Errorf("its name is taken: config map %s %s", run.ID, b.others(there.Labels, want.Labels))
	case there.DeletionTimestamp != nil:
		return "", false, fmt.Errorf("config map %s is being deleted: what is made now would go with it", run.ID)
	}
	if bytes.Equal(there.BinaryData[runKey], packed) {
		return there.UID, false, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": there.UID}, "binaryData": want.BinaryData})
	if err != nil {
		return "", false, err
	}
	_, err = maps.Patch(ctx, run.ID, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return there.UID, false, err
}

// pack gives the same bytes for the same run.
func (b *Backend) pack(run *repo.Run) ([]byte, error) {
	var out bytes.Buffer
	w, ok := b.packers.Get().(*gzip.Writer) // each is nearly a megabyte
	if !ok {
		w = gzip.NewWriter(nil)
	}
	defer b.packers.Put(w)
	w.Reset(&out)
	if err := json.NewEncoder(w).Encode(run); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(packed []byte) (*repo.Run, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxRun))
	if err != nil {
		return nil, err
	}
	var run repo.Run
	if err := json.Unmarshal(text, &run); err != nil {
		return nil, err
	}
	return &run, nil
}

// others says whose a run's object is if its labels are not those that a run's
// own has, "" if they are. One without a repository was made before there was any.
func (b *Backend) others(labels, own map[string]string) string {
	if why := b.alien(labels); why != "" {
		return why
	}
	for k, v := range own {
		if labels[k] != v && k != repo.LabelRepository {
			return fmt.Sprintf("is somebody else's (its label %s is %q)", k, labels[k])
		}
	}
	return ""
}

// alien says whose something is that this environment of this repository did
// not make, "" if it did.
func (b *Backend) alien(labels map[string]string) string {
	switch theirs, ours := labels[repo.LabelRepository], b.repository(); {
	case labels[repo.LabelManagedBy] != repo.ManagedBy:
		return "is not Trainyard's"
	case theirs != "" && ours != "" && theirs != ours:
		return fmt.Sprintf("belongs to environment %q of repository %s", labels[repo.LabelEnvironment], theirs)
	case labels[repo.LabelEnvironment] != b.options.Environment:
		return fmt.Sprintf("belongs to environment %q", labels[repo.LabelEnvironment])
	}
	return ""
}

// runLabels are those of all that a run has.
func (b *Backend) runLabels(id string, key repo.Key) map[string]string {
	return runLabels(id, b.options.Environment, key, b.repository())
}

func runLabels(id, environment string, key repo.Key, repository string) map[string]string {
	labels := map[string]string{
		repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: environment, repo.LabelJob: key.Name, repo.LabelRun: id,
	}
	if repository != "" {
		labels[repo.LabelRepository] = repository
	}
	return labels
}

// Runs are those that Prepare has seen and Forget has not, by ID. It waits
// until the cluster's pods are known: nothing may be decided without them.
func (b *Backend) Runs(ctx context.Context) ([]repo.Run, error) {
	if err := b.Own(ctx, b.repository()); err != nil {
		return nil, err
	}
	if err := b.synced(ctx); err != nil {
		return nil, err
	}
	var out []repo.Run
	for _, n := range b.options.namespaces() {
		found, err := b.runsIn(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		out = append(out, found...)
	}
	slices.SortFunc(out, func(a, b repo.Run) int { return cmp.Compare(a.ID, b.ID) })
	b.look(ctx) // for what an earlier daemon did not come to
	b.wakeTender()
	return out, nil
}

// page is how many config maps are asked for at once: each may be large.
const page = 100

func (b *Backend) runsIn(ctx context.Context, namespace string) (out []repo.Run, err error) {
	options := metav1.ListOptions{LabelSelector: b.ours() + "," + repo.LabelRun, Limit: page}
	for {
		list, err := b.client.CoreV1().ConfigMaps(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			m := &list.Items[i]
			packed, ok := m.BinaryData[runKey]
			if !ok || m.DeletionTimestamp != nil {
				continue // an object of a unit
			}
			run, err := unpack(packed)
			if err == nil && (run.ID != m.Name || run.Job.Namespace != m.Namespace || run.Environment != b.options.Environment) {
				err = errors.New("it is another run's")
			}
			if err != nil {
				// The runner prepares a run again before each pod: it heals by itself.
				b.options.Log.Warn().Err(err).Str("configMap", m.Namespace+"/"+m.Name).Msg("a run's definition is unreadable")
				continue
			}
			b.mu.Lock()
			if b.runs[run.ID].owner != m.UID {
				b.runs[run.ID] = knownRun{key: run.Job.Key, owner: m.UID, checked: time.Now(), progress: run.Job.ProgressDeadline}
			}
			b.mu.Unlock()
			out = append(out, *run)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// Forget removes a run's config map, and with it all that it owns.
func (b *Backend) Forget(ctx context.Context, run, namespace string) error {
	ctx, free, err := b.write(ctx)
	if err != nil {
		return err
	}
	defer free()
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	b.mu.Lock()
	if known, ok := b.runs[run]; ok && known.owner != "" {
		options.Preconditions = &metav1.Preconditions{UID: &known.owner}
	}
	b.mu.Unlock()
	err = b.client.CoreV1().ConfigMaps(namespace).Delete(ctx, run, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("forget run %s: %w", run, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, run)
	return nil
}
