package node

import (
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	socket  = "/run/containerd/containerd.sock"
	domain  = "cluster.local"
	busybox = "/bin/busybox"
)

// covered are the directories that a node has of its own. What Binds bring back
// into them outlives a reboot, the rest does not.
func covered() []string { return []string{"/run", "/var/lib", "/var/log"} }

// etc is the path of a file of configuration, the same on the node and the host.
func (n *Node) etc(name string) string { return filepath.Join(n.place.state, "etc", name) }

func (n *Node) logs() string { return filepath.Join(n.place.state, "log") }

// configure writes what the node's programs read.
func (n *Node) configure() error {
	for _, dir := range []string{"etc/cni", "log", "kubelet", "containerd", "pods", "proc"} {
		if err := os.MkdirAll(filepath.Join(n.place.state, dir), 0o755); err != nil {
			return fmt.Errorf("configure node: %w", err)
		}
	}
	plugins, err := pluginDir()
	if err != nil {
		return err
	}
	kubelet, err := json.MarshalIndent(n.kubeletConfig(), "", "  ")
	if err != nil {
		return fmt.Errorf("configure kubelet: %w", err)
	}
	for name, text := range map[string]string{
		"ca.crt":            string(n.pki.certificate),
		"kubelet.json":      string(kubelet),
		"containerd.toml":   n.containerdConfig(plugins),
		"cni/node.conflist": n.cniConfig(),
		"Corefile":          n.corefile(),
	} {
		if err := os.WriteFile(n.etc(name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("configure node: %w", err)
		}
	}
	return n.identities()
}

// identities are those by which the API server and the node's programs know each
// other.
func (n *Node) identities() error {
	for name, subject := range map[string]pkix.Name{
		"kubelet": {CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"}},
		"coredns": {CommonName: "trainyard-test-dns", Organization: []string{"system:masters"}},
	} {
		if err := n.pki.issue(n.etc(name+".pem"), subject, ""); err != nil {
			return err
		}
		config := api.NewConfig()
		config.Clusters["test"] = &api.Cluster{Server: n.server.String(), CertificateAuthority: n.etc("ca.crt")}
		config.AuthInfos["me"] = &api.AuthInfo{ClientCertificate: n.etc(name + ".pem"), ClientKey: n.etc(name + ".pem")}
		config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "me"}
		config.CurrentContext = "test"
		if err := clientcmd.WriteToFile(*config, n.etc(name+".kubeconfig")); err != nil {
			return fmt.Errorf("configure %s: %w", name, err)
		}
	}
	return n.pki.issue(n.etc("server.pem"), pkix.Name{CommonName: n.Name}, n.IP)
}

// kubeletConfig makes up for what a test machine is not: it may have cgroups of
// version 1, swap, a full disk, and no right to lower an OOM score.
func (n *Node) kubeletConfig() map[string]any {
	none := map[string]string{}
	for _, signal := range []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"} {
		none[signal] = "0%"
	}
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address":                  n.IP,
		"readOnlyPort":             0,
		"containerRuntimeEndpoint": "unix://" + socket,
		"authentication": map[string]any{
			"anonymous": map[string]bool{"enabled": false}, "webhook": map[string]bool{"enabled": false},
			"x509": map[string]string{"clientCAFile": n.etc("ca.crt")},
		},
		"authorization": map[string]string{"mode": "AlwaysAllow"},
		"tlsCertFile":   n.etc("server.pem"), "tlsPrivateKeyFile": n.etc("server.pem"), "rotateCertificates": false,
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.place.cgroup(),
		"enforceNodeAllocatable": []string{}, "oomScoreAdj": 0,
		"failSwapOn": false, "memorySwap": map[string]any{},
		"evictionHard": none, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"makeIPTablesUtilChains": false,
		"clusterDomain":          domain, "clusterDNS": []string{n.IP}, "resolvConf": "",
		"volumePluginDir":           "/var/lib/kubelet/volume-plugins",
		"nodeStatusUpdateFrequency": "2s", "nodeStatusReportFrequency": "5s", "nodeLeaseDurationSeconds": 8,
		"syncFrequency": "10s", "volumeStatsAggPeriod": "1h",
		"registryPullQPS": 0, "eventRecordQPS": 0, "kubeAPIQPS": 200, "kubeAPIBurst": 400,
	}
}

// containerdConfig is of version 2, which later containerds read as well. Without
// restrict_oom_score_adj no pod starts where CAP_SYS_RESOURCE is missing.
func (n *Node) containerdConfig(plugins string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, socket, pauseImage, plugins, n.etc("cni"))
}

// cniConfig puts the pods on the node's bridge, which reaches the other nodes
// and the host: one network, in which each node has a range.
func (n *Node) cniConfig() string {
	prefix := strings.TrimSuffix(n.IP, ".1")
	config := map[string]any{"cniVersion": "1.0.0", "name": "trainyard", "plugins": []any{map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		"ipam": map[string]any{
			"type": "host-local",
			"ranges": [][]map[string]string{{{
				"subnet": network, "rangeStart": prefix + ".2", "rangeEnd": prefix + ".254", "gateway": n.IP,
			}}},
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}}}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // maps of strings
	}
	return string(text)
}

// corefile answers for the cluster's names. All others do not exist: nothing is
// asked outside.
func (n *Node) corefile() string {
	return fmt.Sprintf(`%[2]s:53 in-addr.arpa:53 {
  bind %[1]s
  ready %[1]s:8181
  errors
  kubernetes %[2]s in-addr.arpa {
    kubeconfig %[3]s
    pods insecure
    ttl 1
  }
}
.:53 {
  bind %[1]s
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
`, n.IP, domain, n.etc("coredns.kubeconfig"))
}

// fileSystem is what the node sees where it differs from the host. The kernel's
// settings are the host's as well, and the kubelet would change them: it finds
// files that say what it wants, and leaves them.
func (n *Node) fileSystem(bootID string) (setup, error) {
	in := func(name string) string { return filepath.Join(n.place.state, name) }
	s := setup{Hostname: n.Name, Empty: covered(), Binds: [][2]string{
		{in("kubelet"), "/var/lib/kubelet"},
		{in("containerd"), "/var/lib/containerd"},
		{in("pods"), "/var/log/pods"},
	}}
	for name, value := range map[string]string{
		"/proc/sys/vm/overcommit_memory":      "1",
		"/proc/sys/vm/panic_on_oom":           "0",
		"/proc/sys/kernel/panic":              "10",
		"/proc/sys/kernel/panic_on_oops":      "1",
		"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
		"/proc/sys/kernel/keys/root_maxbytes": "25000000",
		"/proc/sys/kernel/random/boot_id":     bootID,
	} {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		file := in("proc/" + strings.ReplaceAll(strings.TrimPrefix(name, "/proc/"), "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return s, fmt.Errorf("configure node: %w", err)
		}
		s.Binds = append(s.Binds, [2]string{file, name})
	}
	return s, nil
}

// uncovered is an error for a path that the node cannot see.
func uncovered(paths ...string) error {
	for _, p := range paths {
		for _, dir := range covered() {
			if strings.HasPrefix(p, dir+"/") {
				return fmt.Errorf("%s lies below %s, which a node has of its own: set TMPDIR or XDG_CACHE_HOME", p, dir)
			}
		}
	}
	return nil
}

// newBootID looks like one of the kernel's.
func newBootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
