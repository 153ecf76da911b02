package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Own says whether the cluster was started by this package: its nodes are
// simulated, and it may be harmed.
func (c *Cluster) Own() bool { return c.own != nil }

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Config is an administrator's, a copy, without a limit of requests.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client is an administrator's.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Dir is the state folder of a cluster of ours, "" for one of the user's:
// pki/ca.crt, log/kube-apiserver.log, … Nothing may be mounted in it.
func (c *Cluster) Dir() string {
	if c.own == nil {
		return ""
	}
	return c.dir
}

// CA is the path of the certificate that all others of the cluster are signed by.
func (c *Cluster) CA() string { return c.path("pki", "ca.crt") }

// AuditLog is the path of the log that Options.Audit asks for: a line of JSON a request.
func (c *Cluster) AuditLog() string { return c.path("audit.log") }

// ClientCert signs a certificate for a client, as which the API server then
// knows it: cn is its user, orgs are its groups. It is there on clusters of ours alone.
func (c *Cluster) ClientCert(cn string, orgs ...string) (cert, key []byte) {
	if c.own == nil {
		panic("cluster: the authority of a user's own cluster signs nothing for tests")
	}
	cert, key, err := c.ca.client(cn, orgs...)
	if err != nil {
		panic(err) // there was no randomness
	}
	return cert, key
}

// As is how a user without any rights but those that RBAC gives it, or its
// groups, reaches the cluster.
func (c *Cluster) As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	cfg := c.Config()
	if c.own == nil {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		return cfg
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.QPS = -1
	cfg.CertData, cfg.KeyData = c.ClientCert(user, groups...)
	return cfg
}

// KubeconfigFor writes what says the same as cfg, and returns its path.
func (c *Cluster) KubeconfigFor(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	file := api.NewConfig()
	file.CurrentContext = "test"
	file.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "user"}
	file.Clusters["test"] = &api.Cluster{
		Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure,
	}
	file.AuthInfos["user"] = &api.AuthInfo{
		ClientCertificate: cfg.CertFile, ClientCertificateData: cfg.CertData, ClientKey: cfg.KeyFile, ClientKeyData: cfg.KeyData,
		Token: cfg.BearerToken, TokenFile: cfg.BearerTokenFile, Username: cfg.Username, Password: cfg.Password,
		Impersonate: cfg.Impersonate.UserName, ImpersonateGroups: cfg.Impersonate.Groups,
		Exec: cfg.ExecProvider, AuthProvider: cfg.AuthProvider,
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Namespace makes one for the test, in which pods can be created. It is deleted
// at the test's end, which does not wait for that.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	made, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.remove(ctx, made.Name); err != nil {
			t.Logf("remove namespace %s: %v", made.Name, err)
		}
	})
	wait(t, "the namespace's service account", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// remove deletes a namespace, and takes finalizers off the pods in it, which
// nobody else does any more.
func (c *Cluster) remove(ctx context.Context, namespace string) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if len(pod.Finalizers) == 0 {
			continue
		}
		_, err := c.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// wait asks until there is no error, for at most two minutes.
func wait(t testing.TB, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := poll(ctx, ask); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

func poll(ctx context.Context, ask func(context.Context) error) error {
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("still not: %w", ctx.Err()), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
