package mpi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	repo "github.com/trainyard/trainyard/repo-layout"

	"github.com/trainyard/trainyard/render/kubeflow"
	"github.com/trainyard/trainyard/render/manifest"
)

// Names that the operators use, and that images rely on.
const (
	configPath   = "/etc/mpi"
	configVolume = "mpi-job-config"
	hostFile     = "hostfile"
	discoverFile = "discover_hosts.sh"
	kubexecFile  = "kubexec.sh"
	sshVolume    = "ssh-auth"
	rootSSHPath  = "/root/.ssh"
)

// kubexec runs a command in the pod of a host of the host file: what mpirun of
// a v1 job uses in place of ssh. The host's first label is the task.
const kubexec = `#!/bin/sh
HOST=$1
shift
case $HOST in
127.*|localhost) exec /bin/sh -c "$*" ;;
esac
TASK=${HOST%%%%.*}
KUBECTL=/opt/kube/kubectl
[ -x "$KUBECTL" ] || KUBECTL=kubectl
POD=$("$KUBECTL" get pods --selector "trainyard.dev/run={{.Run}},trainyard.dev/role=${TASK%%-*},trainyard.dev/index=${TASK##*-}" --field-selector status.phase=Running --output name)
[ -n "$POD" ] || { echo "no pod of $TASK is running" >&2; exit 1; }
exec "$KUBECTL" exec "$POD"%s -- /bin/sh -c "$*"
`

func (r *reader) config() string { return r.Name + "-mpi" }

// hosts is the ConfigMap with the host file and its scripts.
func (r *reader) hosts() repo.Object {
	slots := strconv.Itoa(int(*r.spec.SlotsPerWorker))
	// One line of the host file, and one of the script that Horovod asks.
	line, found := " slots="+slots, ":"+slots
	if r.second {
		found = ""
	}
	if r.spec.Implementation != openMPI {
		line = ":" + slots
	}
	file, discover := "", "#!/bin/sh\n"
	if r.spec.RunLauncherAsWorker {
		file += fmt.Sprintf("{{host %q 0}}%s\n", kubeflow.RoleName(launcher), line)
		discover += fmt.Sprintf("echo {{host %q 0}}%s\n", kubeflow.RoleName(launcher), found)
	}
	if w := r.Type(worker); w != nil && w.Replicas > 0 {
		file += fmt.Sprintf("{{hosts %q %q}}%s\n", line+"\n", w.Name, line)
		discover += fmt.Sprintf("echo {{hosts %q %q}}%s\n", found+"\necho ", w.Name, found)
	}
	m := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: r.config(), Labels: map[string]string{"app": r.Name}},
		Data:       map[string]string{hostFile: file, discoverFile: discover},
	}
	if !r.second {
		m.Data[kubexecFile] = r.kubexec()
	}
	raw, err := json.Marshal(m)
	if err != nil {
		r.O.Errorf("", "%v", err)
	}
	return repo.Object{APIVersion: m.APIVersion, Kind: m.Kind, Name: m.Name, Raw: raw, Expand: true}
}

// kubexec is for the workers' main container. Its name goes into a script, so
// it is one that there is.
func (r *reader) kubexec() string {
	const at = "spec.mainContainer"
	if l := r.Type(launcher); l != nil && l.Template.Spec.ServiceAccountName == "" {
		r.O.Warnf(r.Path(launcher)+".template.spec.serviceAccountName", "the operator gave the launcher kubectl and a service account of its own; here its image needs kubectl, "+
			"and a service account that is named here the right to list pods and to create pods/exec")
	}
	container := r.spec.MainContainer
	if container == "" {
		return fmt.Sprintf(kubexec, "")
	}
	if w := r.Type(worker); w != nil && !slices.ContainsFunc(w.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == container }) {
		r.O.Errorf(at, "Worker has no container %q", container)
		return ""
	}
	r.O.Label(at, container)
	return fmt.Sprintf(kubexec, " --container "+container)
}

// mount puts the files of the ConfigMap into the first container.
func (r *reader) mount(pod *corev1.PodSpec) {
	items := []corev1.KeyToPath{
		{Key: hostFile, Path: hostFile, Mode: new(int32(0o444))},
		{Key: discoverFile, Path: discoverFile, Mode: new(int32(0o555))},
	}
	if !r.second {
		items = append(items, corev1.KeyToPath{Key: kubexecFile, Path: kubexecFile, Mode: new(int32(0o555))})
	}
	r.volume(pod, configVolume, configPath, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: r.config()}, Items: items,
	}})
}

// keys mounts the keys by which mpirun reaches the workers, where there are any.
func (r *reader) keys(pod *corev1.PodSpec) {
	name, at := r.Name+"-ssh", r.spec.SSHAuthMountPath
	var mode *int32
	if at == rootSSHPath {
		mode = new(int32(0o600))
	}
	const private, public = corev1.SSHAuthPrivateKey, "ssh-publickey"
	r.volume(pod, sshVolume, at, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: new(true),
			Items: []corev1.KeyToPath{{Key: private, Path: "id_rsa"}, {Key: public, Path: "id_rsa.pub"}, {Key: public, Path: "authorized_keys"}},
		}},
	}}})
	if len(r.spec.Replicas) > 1 && pod == &r.Roles[0].Template.Spec {
		r.O.Warnf("spec.sshAuthMountPath", "the operator made SSH keys for each job; here they are those of Secret %q, with the keys %s and %s, which is to be created in the cluster. "+
			"An image with keys of its own in %s needs another sshAuthMountPath", name, private, public, at)
	}
}

func (r *reader) volume(pod *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		r.O.Errorf("spec.mpiReplicaSpecs", "a template declares volume %q, which is the name of one that every MPIJob is given", name)
		return
	}
	if len(pod.Volumes) >= manifest.MaxVolumes {
		r.O.Errorf("spec.mpiReplicaSpecs", "more than %d volumes are too many", manifest.MaxVolumes)
		return
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// variables of the launcher, by which mpirun finds the hosts.
func (r *reader) variables(c *corev1.Container) []corev1.EnvVar {
	const file, attempts = configPath + "/" + hostFile, "-o ConnectionAttempts=10"
	slots := strconv.Itoa(int(*r.spec.SlotsPerWorker))
	var vars []corev1.EnvVar
	add := func(name, value string) { vars = append(vars, corev1.EnvVar{Name: name, Value: value}) }
	switch {
	case !r.second:
		add("OMPI_MCA_plm_rsh_agent", configPath+"/"+kubexecFile)
		add("OMPI_MCA_orte_default_hostfile", file)
	case r.spec.Implementation == openMPI:
		add("OMPI_MCA_orte_keep_fqdn_hostnames", "true")
		add("OMPI_MCA_orte_default_hostfile", file)
		add("OMPI_MCA_plm_rsh_args", attempts)
		add("OMPI_MCA_orte_set_default_slots", slots)
	case r.spec.Implementation == intel:
		add("I_MPI_HYDRA_HOST_FILE", file)
		add("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", attempts)
		add("I_MPI_PERHOST", slots)
	default:
		add("HYDRA_HOST_FILE", file)
		add("HYDRA_LAUNCH_EXTRA_ARGS", attempts)
	}
	if !r.spec.RunLauncherAsWorker { // no process of MPI runs here: it is to see no GPU
		add("NVIDIA_VISIBLE_DEVICES", "")
		add("NVIDIA_DRIVER_CAPABILITIES", "")
	}
	if !r.second {
		for _, v := range [][2]string{{"I_MPI_HYDRA_BOOTSTRAP", "rsh"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", configPath + "/" + kubexecFile}} {
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v[0] }) {
				add(v[0], v[1])
			}
		}
	}
	return vars
}
