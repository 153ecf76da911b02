package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func controlPlane(t *testing.T) ControlPlane {
	dir := "/tmp/w/node.cp"
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig/admin"))
	require.NoError(t, err)
	config.QPS = -1
	cert, err := os.ReadFile(filepath.Join(dir, "pki/ca.crt"))
	require.NoError(t, err)
	key, err := os.ReadFile(filepath.Join(dir, "pki/ca.key"))
	require.NoError(t, err)
	return ControlPlane{Config: config, CACert: cert, CAKey: key}
}

func TestStart(t *testing.T) {
	n := Start(t, Options{ControlPlane: controlPlane(t)})
	t.Log(n.Run(t, "sh", "-c", "mount | tail -25; ip addr; ip route; ps aux; hostname; cat /proc/sys/vm/overcommit_memory; ls -la /run /var/lib"))
}
