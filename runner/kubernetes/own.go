package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// owned is whose pods are watched, and by what.
type owned struct {
	repository string
	informers  []cache.SharedIndexInformer
}

// system is the namespace whose UID is that of the cluster: every cluster has
// one, and none has another's.
const system = metav1.NamespaceSystem

// Cluster is the identity of the cluster, the same whoever asks for it and by
// whatever address; "" if it may not be asked for.
func (b *Backend) Cluster(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := b.client.CoreV1().Namespaces().Get(ctx, system, metav1.GetOptions{})
	switch {
	case err == nil:
		return string(n.UID), nil
	case b.degrades("which cluster this is cannot be asked for", err):
		return "", nil
	}
	b.troubled(corev1.NamespaceAll, err)
	return "", fmt.Errorf("which cluster this is: %w", err)
}

// Own says of which repository the environment is, before anything is asked
// about its pods. Pods and runs that are not marked with any repository were
// made before there was such a mark, when an environment's name belonged to one
// repository: they become this one's. It holds for the life of the backend.
func (b *Backend) Own(ctx context.Context, repository string) error {
	b.owning.Lock()
	defer b.owning.Unlock()
	if now := b.owned.Load(); now != nil {
		if now.repository == repository {
			return nil
		}
		return fmt.Errorf("the pods of repository %s are watched, and not those of %s: start the daemon again", now.repository, repository)
	}
	if repository != "" {
		if err := b.adopt(ctx, repository); err != nil {
			b.troubled(corev1.NamespaceAll, err)
			return err
		}
	}
	o := &owned{repository: repository}
	for _, n := range b.options.namespaces() {
		informer, err := b.informer(n, selector(b.options.Environment, repository))
		if err != nil {
			return fmt.Errorf("kubernetes runner: %w", err)
		}
		o.informers = append(o.informers, informer)
	}
	for _, informer := range o.informers {
		b.done.Go(func() { informer.RunWithContext(b.work) })
	}
	b.owned.Store(o)
	return nil
}

// informers hold the pods that are watched; none before Own.
func (b *Backend) informers() []cache.SharedIndexInformer {
	if o := b.owned.Load(); o != nil {
		return o.informers
	}
	return nil
}

// repository is the identity of the one that is served, "" if there is none.
func (b *Backend) repository() string {
	if o := b.owned.Load(); o != nil {
		return o.repository
	}
	return b.options.Repository
}

// ours selects what this environment of this repository made.
func (b *Backend) ours() string { return selector(b.options.Environment, b.repository()) }

func selector(environment, repository string) string {
	set := labels.Set{repo.LabelManagedBy: repo.ManagedBy, repo.LabelEnvironment: environment}
	if repository != "" {
		set[repo.LabelRepository] = repository
	}
	return labels.SelectorFromSet(set).String()
}

// adopt marks the pods and runs that nobody has marked. It may be stopped
// anywhere, and is done again by the next daemon.
func (b *Backend) adopt(ctx context.Context, repository string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{repo.LabelRepository: repository}}})
	if err != nil {
		return err
	}
	marked := 0
	for _, namespace := range b.options.namespaces() {
		for _, of := range []string{"configmaps", "pods"} {
			n, err := b.mark(ctx, of, namespace, patch)
			if err != nil {
				return fmt.Errorf("take over what is of no repository: %w", err)
			}
			marked += n
		}
	}
	if marked > 0 {
		b.options.Log.Info().Msgf("environment %s: %d pods and runs that were of no repository are of %s now", b.options.Environment, marked, repository)
	}
	return nil
}

// mark patches what has no mark yet, and counts it.
func (b *Backend) mark(ctx context.Context, resource, namespace string, patch []byte) (marked int, err error) {
	objects := b.dynamic.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	options := metav1.ListOptions{LabelSelector: selector(b.options.Environment, "") + "," + repo.LabelRun + ",!" + repo.LabelRepository, Limit: page}
	for {
		found, err := objects.Namespace(namespace).List(ctx, options)
		if err != nil {
			return marked, err
		}
		for i := range found.Items {
			o := &found.Items[i]
			_, err := objects.Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
			if err != nil && !apierrors.IsNotFound(err) {
				return marked, fmt.Errorf("%s %s/%s: %w", resource, o.GetNamespace(), o.GetName(), err)
			}
			marked++
		}
		if options.Continue = found.GetContinue(); options.Continue == "" {
			return marked, nil
		}
	}
}
