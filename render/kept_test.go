package render

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// samples are a job of each format. CONTAINER stands for what a container has
// beside its name.
var samples = map[string]string{
	"TrainingJob":           "apiVersion: trainyard.dev/v1\nkind: TrainingJob\nmetadata: {name: a}\nspec: {roles: [{name: worker, template: {spec: {containers: [{name: a, CONTAINER}]}}}, {name: ps, daemon: true, template: {spec: {containers: [{name: b, CONTAINER}]}}}]}\n",
	"Framework":             "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: a}\nspec: {taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, containers: [{name: a, CONTAINER}]}}}}]}\n",
	"Framework of launcher": "apiVersion: launcher.microsoft.com/v1\nkind: Framework\nmetadata: {name: a}\nspec: {taskRoles: [{name: w, taskNumber: 1, task: {pod: {spec: {restartPolicy: Never, containers: [{name: a, CONTAINER}]}}}}]}\n",
	"TfJob":                 "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: a}\nspec: {replicaSpecs: [{template: {spec: {containers: [{name: tensorflow, CONTAINER}]}}}]}\n",
	"TfJob of old":          "apiVersion: mlkube.io/v1beta1\nkind: TfJob\nmetadata: {name: a}\nspec: {replica_specs: [{template: {spec: {containers: [{name: tensorflow, CONTAINER}]}}}]}\n",
	"MxJob":                 "apiVersion: mxnet.mlkube.io/v1beta1\nkind: MxJob\nmetadata: {name: a}\nspec: {jobMode: local, replicaSpecs: [{template: {spec: {containers: [{name: mxnet, CONTAINER}]}}}]}\n",
	"TFJob":                 "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, CONTAINER}]}}}, PS: {template: {spec: {containers: [{name: tensorflow, CONTAINER}]}}}}}\n",
	"PyTorchJob":            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: pytorch, CONTAINER}]}}}, Worker: {template: {spec: {containers: [{name: pytorch, CONTAINER}]}}}}}\n",
	"MXJob":                 "apiVersion: kubeflow.org/v1\nkind: MXJob\nmetadata: {name: a}\nspec: {jobMode: MXTrain, mxReplicaSpecs: {Scheduler: {template: {spec: {containers: [{name: mxnet, CONTAINER}]}}}, Worker: {template: {spec: {containers: [{name: mxnet, CONTAINER}]}}}}}\n",
	"XGBoostJob":            "apiVersion: kubeflow.org/v1\nkind: XGBoostJob\nmetadata: {name: a}\nspec: {xgbReplicaSpecs: {Master: {template: {spec: {containers: [{name: xgboost, CONTAINER}]}}}}}\n",
	"PaddleJob":             "apiVersion: kubeflow.org/v1\nkind: PaddleJob\nmetadata: {name: a}\nspec: {paddleReplicaSpecs: {Worker: {template: {spec: {containers: [{name: paddle, CONTAINER}]}}}}}\n",
	"JAXJob":                "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: a}\nspec: {jaxReplicaSpecs: {Worker: {template: {spec: {containers: [{name: jax, CONTAINER}]}}}}}\n",
	"MPIJob":                "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec: {mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: l, CONTAINER}]}}}, Worker: {replicas: 1, template: {spec: {containers: [{name: w, CONTAINER}]}}}}}\n",
	"Job":                   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, CONTAINER}]}}}\n",
	"JobSet":                "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, CONTAINER}]}}}}}]}\n",
}

// written are fields of a pod that no format has a say in.
const written = `
nodeSelector: {pool: a}
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: In, values: [b, a]}]}]}}
  podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {a: b}}}}]}
tolerations: [{key: b, operator: Exists, tolerationSeconds: 5}, {key: a, effect: NoSchedule}]
topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [x], nodeTaintsPolicy: Honor}]
runtimeClassName: nvidia
schedulerName: mine
priorityClassName: high
priority: 7
preemptionPolicy: Never
schedulingGates: [{name: example.com/b}, {name: example.com/a}]
resourceClaims: [{name: gpu, resourceClaimTemplateName: one}, {name: all, resourceClaimName: shared}]
hostNetwork: true
hostPID: true
hostIPC: true
hostUsers: false
shareProcessNamespace: true
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.1], options: [{name: ndots, value: "2"}]}
hostAliases: [{ip: 10.0.0.2, hostnames: [x]}]
hostname: fixed
subdomain: given
setHostnameAsFQDN: true
serviceAccountName: robot
serviceAccount: robot
automountServiceAccountToken: false
imagePullSecrets: [{name: registry}]
securityContext: {runAsUser: 5, fsGroup: 6, supplementalGroups: [7, 8], sysctls: [{name: a, value: b}]}
nodeName: n1
enableServiceLinks: false
overhead: {cpu: 250m}
readinessGates: [{conditionType: example.com/ready}]
os: {name: linux}
terminationGracePeriodSeconds: 17
activeDeadlineSeconds: 1000
resources: {limits: {cpu: "4"}}
hostnameOverride: other
schedulingGroup: {podGroupName: gang}
`

// notWritten are the others, with where they are looked at.
var notWritten = map[string]string{
	"containers": "the goldens of each format", "initContainers": "the goldens of each format", "volumes": "the goldens of each format",
	"ephemeralContainers": "nothing: only a running pod can be given them",
	"restartPolicy":       "each format's own tests: a retry is the run's",
}

// excepted are fields that a format sets itself, as upstream does.
var excepted = map[string][]string{
	"JobSet": {"hostname", "subdomain"}, // the names by which its pods find each other
}

// TestKeptAsWritten: what a job's file says of its pods is what the pods have,
// in every format, whether the job says it or the environment's overlay.
func TestKeptAsWritten(t *testing.T) {
	var want map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(written), &want))
	pod := reflect.TypeFor[corev1.PodSpec]()
	for i := range pod.NumField() {
		name, _, _ := strings.Cut(pod.Field(i).Tag.Get("json"), ",")
		_, listed := want[name]
		assert.True(t, listed != (notWritten[name] != ""), "%s: either its value is here or why it is not", name)
	}
	known := known()
	covered := map[string]bool{}
	for kind, text := range samples {
		text = strings.ReplaceAll(text, "CONTAINER", "image: a/b, resources: {claims: [{name: gpu, request: r}, {name: all}], limits: {amd.com/gpu: 2}}")
		var document map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		covered[document["kind"].(string)] = true
		format := known.find(document["apiVersion"].(string), document["kind"].(string))
		require.NotNil(t, format, kind)

		plain, err := yaml.Marshal(strip(document))
		require.NoError(t, err)
		overlay, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}, "spec": want})
		require.NoError(t, err)
		requireWritten(t, kind+" by overlay", want, map[string]string{
			"jobs/a.yaml":                      string(plain),
			"overlays/prod/kustomization.yaml": componentHeader + "patches: [{target: {kind: Pod}, patch: '" + string(overlay) + "'}]\n",
		})
		changed := 0
		for _, path := range format.Templates {
			changed += inject(document, strings.Split(path+".spec", "."), want)
		}
		require.Positive(t, changed, kind)
		job, err := yaml.Marshal(document)
		require.NoError(t, err)
		requireWritten(t, kind, want, map[string]string{"jobs/a.yaml": string(job)})
	}
	for _, format := range known {
		for _, k := range format.Kinds {
			assert.True(t, covered[k.Kind] || len(format.Templates) == 0 || k.Kind == "TrainJob", "%s has no sample", k.Kind)
		}
	}
}

// strip takes the claims away, which an overlay brings.
func strip(document map[string]any) map[string]any {
	text, _ := json.Marshal(document)
	var plain map[string]any
	_ = json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"claims":[{"name":"gpu","request":"r"},{"name":"all"}],`, "")), &plain)
	return plain
}

// inject adds fields to the maps at a path like spec.roles[*].template.spec.
func inject(v any, path []string, fields map[string]any) (changed int) {
	m, ok := v.(map[string]any)
	if !ok {
		return 0
	}
	if len(path) == 0 {
		for k, x := range fields {
			m[k] = x
		}
		return 1
	}
	key, each := strings.CutSuffix(path[0], "[*]")
	if !each {
		return inject(m[key], path[1:], fields)
	}
	list, _ := m[key].([]any)
	for _, item := range list {
		changed += inject(item, path[1:], fields)
	}
	return changed
}

// requireWritten renders the files and compares each role's pod with what was written.
func requireWritten(t *testing.T, kind string, want map[string]any, files map[string]string) {
	t.Helper()
	defs := render(t, files)
	require.Empty(t, all(defs), kind)
	require.Len(t, defs.Jobs, 1, kind)
	run := repo.Run{ID: "run", Environment: "prod", Job: defs.Jobs[0]}
	for _, role := range defs.Jobs[0].Roles {
		text, err := json.Marshal(first(t, &run, role.Name).Spec)
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, json.Unmarshal(text, &got))
		for field, value := range want {
			if slices.Contains(excepted[kind], field) {
				assert.NotEqual(t, value, got[field], "%s sets its %s no more", kind, field)
				continue
			}
			a, _ := json.Marshal(value)
			b, _ := json.Marshal(got[field])
			assert.JSONEq(t, string(a), string(b), "%s, role %s: %s", kind, role.Name, field)
		}
		container := got["containers"].([]any)[0].(map[string]any)["resources"].(map[string]any)
		assert.Equal(t, map[string]any{"amd.com/gpu": "2"}, container["limits"], kind)
		if !strings.HasSuffix(kind, "overlay") {
			assert.Equal(t, []any{map[string]any{"name": "gpu", "request": "r"}, map[string]any{"name": "all"}}, container["claims"], kind)
		}
	}
}
