package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func volume(name string, source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
}

func mounted(m corev1.VolumeMount) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, m)
			}
		}
	}
}

func initScript(script string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init", Command: []string{"/bin/sh", "-c", script}})
	}
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// needMounts leaves out a test where the system has no private mounts, saying so.
func needMounts(t *testing.T, b *Backend) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("private mounts are Linux's")
	}
	pod := run(t, b, testPod("can-it", "true", volume("v", emptyDir()), mounted(corev1.VolumeMount{Name: "v", MountPath: "/no-such-place"})), corev1.PodSucceeded)
	if c := conditionOf(pod, "VolumesNotMounted"); c.Status == corev1.ConditionTrue {
		t.Skip("this machine allows no private mounts: " + c.Message)
	}
}

type mountTest struct {
	name, script, want string
	edits              []func(*corev1.Pod)
}

// mountTests are programs that look at their volumes; outside is a directory of the machine.
func mountTests(outside string) []mountTest {
	host := func(path string, kind corev1.HostPathType) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}
	}
	mode := int32(0o440)
	settings := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}
	items := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: "lr", Path: "deep/rate"}}}}
	fields := corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}

	return []mountTest{
		{"empty-dir-of-all-containers", "cat /data/x", "hello\n", []func(*corev1.Pod){
			initScript("echo hello > /data/x"), volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})}},
		{"below-a-directory-that-is-there", "cat /usr/models/x; test -x /usr/bin/env && echo still", "hello\nstill\n", []func(*corev1.Pod){
			initScript("echo hello > /usr/models/x"), volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/usr/models"})}},
		{"over-a-directory-that-is-there", "ls /usr/games | wc -l; ls /media", "0\nmine\n", []func(*corev1.Pod){
			initScript("echo > /media/mine"), volume("data", emptyDir()), volume("none", emptyDir()),
			mounted(corev1.VolumeMount{Name: "data", MountPath: "/media"}), mounted(corev1.VolumeMount{Name: "none", MountPath: "/usr/games"})}},
		{"one-in-another", "cat /a/x /a/b/x; ls /a", "outer\ninner\nb\nx\n", []func(*corev1.Pod){
			initScript("echo outer > /a/x; echo inner > /a/b/x"), volume("a", emptyDir()), volume("b", emptyDir()),
			mounted(corev1.VolumeMount{Name: "b", MountPath: "/a/b"}), mounted(corev1.VolumeMount{Name: "a", MountPath: "/a"})}},
		{"in-memory", "df -P /m/n | tail -1 | cut -d' ' -f1; df -P /dev/shm | tail -1 | cut -d' ' -f1", "tmpfs\ntmpfs\n", []func(*corev1.Pod){
			volume("m", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}), mounted(corev1.VolumeMount{Name: "m", MountPath: "/m/n"})}},
		{"sub-path", "echo x > /sub/file; cat $TRAINYARD_VOLUME_DATA/one/two/file", "x\n", []func(*corev1.Pod){
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/sub", SubPath: "one/two"})}},
		{"sub-path-expr", "ls -d $TRAINYARD_VOLUME_DATA/sub-path-expr | wc -l", "1\n", []func(*corev1.Pod){
			func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ME", Value: p.Name}} },
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/sub", SubPathExpr: "$(ME)"})}},
		{"read-only", "(echo x > /ro/x) 2>/dev/null || echo refused; cat /ro/in", "refused\nfrom outside\n", []func(*corev1.Pod){
			volume("h", host(outside, corev1.HostPathDirectory)), mounted(corev1.VolumeMount{Name: "h", MountPath: "/ro", ReadOnly: true})}},
		{"host-directory", "cat /h/in; echo back > /h/out", "from outside\n", []func(*corev1.Pod){
			volume("h", host(outside, "")), mounted(corev1.VolumeMount{Name: "h", MountPath: "/h"})}},
		{"host-directory-made", "echo x > /h/x; test -d " + outside + "/made/deep && echo made", "made\n", []func(*corev1.Pod){
			volume("h", host(outside+"/made/deep", corev1.HostPathDirectoryOrCreate)), mounted(corev1.VolumeMount{Name: "h", MountPath: "/h"})}},
		{"host-file", "cat /etc/trainyard-test-file", "from outside\n", []func(*corev1.Pod){
			volume("h", host(outside+"/in", corev1.HostPathFile)), mounted(corev1.VolumeMount{Name: "h", MountPath: "/etc/trainyard-test-file"})}},
		{"config-map", "cat /etc/settings/lr; echo; cat /etc/settings/file.txt", "0.1\ntext\n", []func(*corev1.Pod){
			volume("s", settings), mounted(corev1.VolumeMount{Name: "s", MountPath: "/etc/settings"})}},
		{"config-map-items", "cd /s; find . -type f; cat deep/rate; stat -c ' %a' deep/rate", "./deep/rate\n0.1 440\n", []func(*corev1.Pod){
			volume("s", items), mounted(corev1.VolumeMount{Name: "s", MountPath: "/s"})}},
		{"config-map-file", "cat /one/file", "0.1", []func(*corev1.Pod){
			volume("s", settings), mounted(corev1.VolumeMount{Name: "s", MountPath: "/one/file", SubPath: "lr"})}},
		{"downward", "cat /d/name", "downward", []func(*corev1.Pod){
			volume("d", fields), mounted(corev1.VolumeMount{Name: "d", MountPath: "/d"})}},
		{"beside-what-is-there", "cat " + outside + "/parent/sibling; echo x > " + outside + "/parent/new/x", "sibling\n", []func(*corev1.Pod){
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: outside + "/parent/new"})}},
		{"working-directory", "pwd", "/data/deep\n", []func(*corev1.Pod){
			initScript("mkdir /data/deep"), func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/data/deep" },
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})}},
		{"who-one-is", "id -u; test -e /proc/self/exe && echo proc; test -c /dev/null && echo dev; grep CapEff /proc/self/status | tr -s '\\t ' ' '", "", []func(*corev1.Pod){
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})}},
	}
}

func TestVolumesAreMounted(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	needMounts(t, b)
	ctx := context.Background()
	outside, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(outside, "in"), []byte("from outside\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(outside, "parent"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "parent", "sibling"), []byte("sibling\n"), 0o600))
	_, err = b.Prepare(ctx, testRun("run-1"), 0)
	require.NoError(t, err)
	for _, tc := range mountTests(outside) {
		t.Run(tc.name, func(t *testing.T) {
			pod := run(t, b, testPod(tc.name, tc.script, tc.edits...), corev1.PodSucceeded)
			text := logOf(t, b, tc.name, "")
			assert.Empty(t, conditionOf(pod, "VolumesNotMounted").Message)
			if tc.want != "" {
				assert.Equal(t, tc.want, text)
			} else if os.Geteuid() != 0 {
				assert.Contains(t, text, "CapEff: 0000000000000000", "no capability is left over")
			}
		})
	}
	t.Run("nothing is left outside", func(t *testing.T) {
		for _, path := range []string{"/data", "/usr/models", "/a", "/m", "/sub", "/ro", "/h", "/etc/settings", "/etc/trainyard-test-file", "/s", "/one", "/d", "/media/mine", outside + "/parent/new"} {
			assert.NoFileExists(t, path)
			assert.NoDirExists(t, path)
		}
		left, _ := filepath.Glob(memoryRoot + "/trainyard-*")
		for _, l := range left {
			assert.NotContains(t, l, string(get(t, b, "in-memory").UID))
		}
		text, err := os.ReadFile(filepath.Join(outside, "out"))
		require.NoError(t, err)
		assert.Equal(t, "back\n", string(text))
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		assert.NotContains(t, string(mounts), b.dir)
	})
	mountsOfPodsThatFail(t, b)
}

func mountsOfPodsThatFail(t *testing.T, b *Backend) {
	t.Helper()
	t.Run("restarts mount again", func(t *testing.T) {
		run(t, b, testPod("again", "echo x >> /data/x; echo y > /usr/y 2>/dev/null; test $(wc -l < /data/x) = 3", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}, volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"}), volume("u", emptyDir()), mounted(corev1.VolumeMount{Name: "u", MountPath: "/usr/u"})), corev1.PodSucceeded)
		assert.NoFileExists(t, "/usr/y")
	})
	t.Run("a command that is not there is the command's fault", func(t *testing.T) {
		pod := run(t, b, testPod("not-there", "", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"no-such-program"} },
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})), corev1.PodFailed)
		assert.Equal(t, "ContainerCannotRun", ended(pod).Reason)
		assert.Contains(t, ended(pod).Message, "no-such-program")
		assert.Equal(t, int32(127), ended(pod).ExitCode)
		pod = run(t, b, testPod("not-a-program", "", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/etc/passwd"} },
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})), corev1.PodFailed)
		assert.Equal(t, int32(126), ended(pod).ExitCode, "as without mounts")
		pod = run(t, b, testPod("no-directory", "true", func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/no/such" },
			volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})), corev1.PodFailed)
		assert.Equal(t, int32(128), ended(pod).ExitCode, "as without mounts")
	})
	t.Run("mounts end with a killed shim", func(t *testing.T) {
		create(t, b, testPod("lost", "echo $$$$ > pid; sleep 1000; true", volume("data", emptyDir()), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})))
		pid := grepPID(t, filepath.Join(b.podDir("ns", "lost"), workDir, "pid"))
		require.NoError(t, shimOf(t, b, "lost").signal(syscall.SIGKILL))
		assert.Equal(t, ReasonShimLost, until(t, b, "lost", corev1.PodFailed).Status.Reason)
		assert.False(t, live(pid))
	})
}

// Everything above once more as somebody who is not root.
func TestVolumesUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this is somebody already")
	}
	dir, err := os.MkdirTemp("", "ty-nobody-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o777))
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	binary := filepath.Join(dir, "local.test")
	program(t, binary, self)
	cmd := exec.Command(binary, "-test.run=^TestVolumesAreMounted$|^TestShimKilled$|^TestUnreadable|^TestOutcomeWaits|^TestDaemonKilled", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "SKIP") || strings.Contains(line, "allows no private mounts") {
			t.Log(strings.TrimSpace(line))
		}
	}
	require.NoError(t, err, string(out))
	for _, name := range []string{"TestShimKilled", "TestUnreadableIsNotDamaged", "TestOutcomeWaitsForTheDisk"} {
		assert.Contains(t, string(out), "PASS: "+name)
	}
}

func TestWithoutPrivateMounts(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t), func(o *Options) { o.NoMounts = true })
	pod := run(t, b, testPod("unmounted", "cat $TRAINYARD_VOLUME_MY_DATA/x; test -e /data || echo not mounted",
		initScript("echo hello > $TRAINYARD_VOLUME_MY_DATA/x"), volume("my-data", emptyDir()), mounted(corev1.VolumeMount{Name: "my-data", MountPath: "/data"})), corev1.PodSucceeded)
	assert.Equal(t, "hello\nnot mounted\n", logOf(t, b, "unmounted", ""))
	c := conditionOf(pod, "VolumesNotMounted")
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Contains(t, c.Message, "TRAINYARD_VOLUME_")
}

func TestVolumesThatCannotBe(t *testing.T) {
	t.Parallel()
	b := open(t, stateDir(t))
	dir := corev1.HostPathDirectory
	tests := map[string]struct {
		source corev1.VolumeSource
		want   string
	}{
		"nfs":               {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/x"}}, `volume "data": is an nfs volume: the local runner cannot mount it`},
		"pvc":               {corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}, `volume "data": is a persistentVolumeClaim volume`},
		"no-such-directory": {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/no/such", Type: &dir}}, "hostPath /no/such: no such file or directory"},
		"no-directory":      {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/passwd", Type: &dir}}, "hostPath /etc/passwd is no Directory"},
		"no-map":            {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}, `configmap "gone" not found`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := run(t, b, testPod(name, "true", volume("data", tc.source), mounted(corev1.VolumeMount{Name: "data", MountPath: "/data"})), corev1.PodFailed)
			assert.Equal(t, "FailedMount", pod.Status.Reason)
			assert.Contains(t, pod.Status.Message, tc.want)
			require.NotNil(t, pod.Status.ContainerStatuses[0].State.Waiting)
			assert.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message, tc.want)
		})
	}
}

// A link within a volume must not make another directory look like a part of it.
func TestSubPathStaysInItsVolume(t *testing.T) {
	t.Parallel()
	v := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(v, "out")))
	require.NoError(t, os.Mkdir(filepath.Join(v, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(v, "in")))
	_, err := within(v, "out")
	assert.Error(t, err)
	_, err = within(v, "out/ssh")
	assert.Error(t, err)
	_, err = within(v, "../x")
	assert.Error(t, err)
	got, err := within(v, "in")
	require.NoError(t, err)
	assert.Equal(t, "real", filepath.Base(got))
}
