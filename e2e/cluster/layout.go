package cluster

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// stages say to kwok what becomes of nodes and pods.
//
//go:embed stages.yaml
var stages []byte

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// users are the identities of the parts, each with a kubeconfig of its own.
var users = []struct{ file, name, group string }{
	{"admin", "admin", "system:masters"},
	{"kube-controller-manager", "system:kube-controller-manager", ""},
	{"kube-scheduler", "system:kube-scheduler", ""},
	{"kwok", "kwok", "system:masters"},
	{"kubelet-client", "kube-apiserver", "system:masters"},
}

// lay writes what the parts need into the state folder, and says how each is started.
func (c *Cluster) lay(program string) error {
	for _, dir := range []string{"pki", "log", "kubeconfig"} {
		if err := os.Mkdir(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	ports, err := freePorts(7)
	if err != nil {
		return err
	}
	server := "https://" + at(ports[2])
	if c.ca, err = newAuthority(c.path("pki")); err != nil {
		return err
	}
	if err := c.certify(server); err != nil {
		return err
	}
	c.kubeconfig = c.path("kubeconfig", "admin")
	for name, text := range map[string]string{
		"audit.yaml":     auditPolicy,
		"stages.yaml":    string(stages),
		"scheduler.yaml": schedulerConfig(c.path("kubeconfig", "kube-scheduler")),
	} {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	c.parts = []*part{
		c.part(program, "etcd", "http://"+at(ports[0])+"/health", c.etcd(ports[0], ports[1])),
		c.part(program, "kube-apiserver", server+"/readyz", c.apiServer(ports[0], ports[2])),
		c.part(program, "kube-controller-manager", "https://"+at(ports[3])+"/healthz", c.controllers(ports[3])),
		c.part(program, "kube-scheduler", "https://"+at(ports[4])+"/readyz", c.scheduler(ports[4])),
		c.part(program, "kwok", "http://"+at(ports[5])+"/healthz", c.kwok(ports[5], ports[6])),
	}
	if c.options.Bare {
		c.parts = c.parts[:3]
	}
	return nil
}

func (c *Cluster) path(names ...string) string {
	return filepath.Join(append([]string{c.dir}, names...)...)
}

func at(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func (c *Cluster) part(program, name, health string, args []string) *part {
	return &part{name: name, program: program, dir: c.dir, args: args, log: c.path("log", name+".log"), health: health}
}

// certify issues what everybody needs to know everybody.
func (c *Cluster) certify(server string) error {
	if err := c.ca.accountKey(); err != nil {
		return err
	}
	// All parts listen on loopback; the second is what pods call the API server by.
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	cert, key, err := c.ca.server("test", addresses, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	if err := c.ca.save("server", cert, key); err != nil {
		return err
	}
	for _, u := range users {
		cert, key, err := c.ca.client(u.name, u.group)
		if err != nil {
			return err
		}
		if err := c.ca.save(u.file, cert, key); err != nil {
			return err
		}
		file := api.NewConfig()
		file.CurrentContext = "test"
		file.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: u.file}
		// Not the paths: client-go looks at certificates that lie in files for as long
		// as the process lives, and complains when the cluster and its folder are gone.
		file.Clusters["test"] = &api.Cluster{Server: server, CertificateAuthorityData: c.ca.pem()}
		file.AuthInfos[u.file] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		if err := clientcmd.WriteToFile(*file, c.path("kubeconfig", u.file)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) etcd(port, peer int) []string {
	return []string{
		"--name=test", "--data-dir=" + c.path("etcd"), "--log-level=warn",
		"--listen-client-urls=http://" + at(port), "--advertise-client-urls=http://" + at(port),
		"--listen-peer-urls=http://" + at(peer), "--initial-advertise-peer-urls=http://" + at(peer),
		"--initial-cluster=test=http://" + at(peer), "--quota-backend-bytes=2147483648",
		// A process may be killed and find its data again; the machine may not.
		"--unsafe-no-fsync",
	}
}

func (c *Cluster) apiServer(etcd, port int) []string {
	pki := func(name string) string { return c.path("pki", name) }
	args := []string{
		"--etcd-servers=http://" + at(etcd),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none", // loopback is no address for an endpoint
		"--tls-cert-file=" + pki("server.crt"), "--tls-private-key-file=" + pki("server.key"), "--client-ca-file=" + pki("ca.crt"),
		"--authorization-mode=Node,RBAC", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/16",
		"--service-account-key-file=" + pki("accounts.pub"), "--service-account-signing-key-file=" + pki("accounts.key"),
		"--kubelet-client-certificate=" + pki("kubelet-client.crt"), "--kubelet-client-key=" + pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}
	if c.options.Audit {
		args = append(args, "--audit-log-path="+c.AuditLog(), "--audit-policy-file="+c.path("audit.yaml"))
	}
	if c.options.Runtime != "" {
		args = append(args, "--runtime-config="+c.options.Runtime)
	}
	return c.gated(args)
}

func (c *Cluster) controllers(port int) []string {
	grace := c.options.NodeGrace
	which := "*"
	if c.options.Bare {
		which = "garbage-collector-controller,serviceaccount-controller"
	}
	return c.gated([]string{
		"--controllers=" + which, "--kubeconfig=" + c.path("kubeconfig", "kube-controller-manager"), "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.path("pki", "server.crt"), "--tls-private-key-file=" + c.path("pki", "server.key"),
		"--use-service-account-credentials", "--root-ca-file=" + c.path("pki", "ca.crt"),
		"--service-account-private-key-file=" + c.path("pki", "accounts.key"),
		"--cluster-signing-cert-file=" + c.path("pki", "ca.crt"), "--cluster-signing-key-file=" + c.path("pki", "ca.key"),
		"--kube-api-qps=500", "--kube-api-burst=1000", "--profiling=false",
		"--node-monitor-grace-period=" + grace.String(),
		"--node-monitor-period=" + min(5*time.Second, grace/5).String(),
	})
}

func schedulerConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
enableProfiling: false
clientConnection: {kubeconfig: %q, qps: 5000, burst: 10000}
`, kubeconfig)
}

func (c *Cluster) scheduler(port int) []string {
	return c.gated([]string{
		"--config=" + c.path("scheduler.yaml"), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.path("pki", "server.crt"), "--tls-private-key-file=" + c.path("pki", "server.key"),
	})
}

// kwok renews a lease when a quarter of it is over: it lasts a good deal less
// than the time after which a silent node is given up.
func (c *Cluster) kwok(port, logs int) []string {
	lease := max(1, int(c.options.NodeGrace.Seconds()*0.8))
	return []string{
		"--kubeconfig=" + c.path("kubeconfig", "kwok"), "--config=" + c.path("stages.yaml"),
		"--manage-nodes-with-label-selector=" + managedLabel + "=true", "--node-ip=127.0.0.1",
		"--node-port=" + strconv.Itoa(logs), "--server-address=" + at(port), "--node-lease-duration-seconds=" + strconv.Itoa(lease),
		"--tls-cert-file=" + c.path("pki", "server.crt"), "--tls-private-key-file=" + c.path("pki", "server.key"),
		"--cidr=10.244.0.0/16", "-v=WARN",
	}
}

func (c *Cluster) gated(args []string) []string {
	if c.options.Gates != "" {
		args = append(args, "--feature-gates="+c.options.Gates)
	}
	return args
}
