package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// object is a file's only document as kustomize would build it, changed by overlay.
func object(t *testing.T, text string, overlay func(map[string]any)) *Object {
	t.Helper()
	docs, errs := Parse("f.yaml", []byte(text))
	require.Empty(t, errs)
	require.Len(t, docs, 1)
	var built map[string]any
	require.NoError(t, docs[0].Root.Decode(&built))
	if overlay != nil {
		overlay(built)
	}
	return NewObject(built, docs[0], repo.Settings{})
}

type target struct {
	Name     string                 `json:"name"`
	Count    *int32                 `json:"count"`
	Ratio    float64                `json:"ratio"`
	On       bool                   `json:"enabled"`
	List     []string               `json:"list"`
	Text     map[string]string      `json:"text"`
	Template corev1.PodTemplateSpec `json:"template"`
	Any      any                    `json:"any"`
	ReplicaX int                    `json:"replicaX"`
}

func TestDecodeReportsEverythingAtOnce(t *testing.T) {
	o := object(t, `spec:
  nmae: x
  count: two
  ratio: yes
  enabled: "true"
  list: {a: b}
  text: {a: 8080, b: n, c: 010, d: true, e: null}
  template:
    spec:
      containers:
      - name: tf
        olumeMounts: [{name: data, mountPath: /data}]
        env: [{name: A, value: 1}]
        resources: {limits: {cpu: many, memory: 1Gi}}
        livenessProbe: {httpGet: {port: true}, initialDelaySeconds: 1.5}
        ports: [{containerPort: 99999999999}]
      - containers
      restartPolcy: Never
`, nil)
	var got target
	o.Decode("spec", &got, Options{})
	want := []string{
		`f.yaml:2:3: spec.nmae: unknown field; did you mean "name"?`,
		`f.yaml:3:3: spec.count: want a number, not the text "two"`,
		`f.yaml:4:3: spec.ratio: want a number, not the text "yes"`,
		`f.yaml:5:3: spec.enabled: want true or false, not the text "true"`,
		`f.yaml:6:3: spec.list: want a list, not a map`,
		`f.yaml:7:10: spec.text.a: want text, not the number 8080: write "8080" in quotes`,
		`f.yaml:7:19: spec.text.b: want text: unquoted n is read as the boolean false by many YAML readers; write "n" in quotes`,
		`f.yaml:7:25: spec.text.c: want text, not the number 8: unquoted 010 is read as the number 8; write "010" in quotes`,
		`f.yaml:7:33: spec.text.d: want text, not the boolean true: write "true" in quotes`,
		`f.yaml:12:9: spec.template.spec.containers[0].olumeMounts: unknown field; did you mean "volumeMounts"? Container "tf" has no mount for volume "data"`,
		`f.yaml:13:25: spec.template.spec.containers[0].env[0].value: want text, not the number 1: write "1" in quotes`,
		`f.yaml:14:30: spec.template.spec.containers[0].resources.limits.cpu: want a quantity like 4, 500m or 16Gi, not the text "many"`,
		`f.yaml:15:35: spec.template.spec.containers[0].livenessProbe.httpGet.port: want a number or text, not the boolean true: write "true" in quotes`,
		`f.yaml:15:48: spec.template.spec.containers[0].livenessProbe.initialDelaySeconds: want a whole number, not the number 1.5`,
		`f.yaml:16:18: spec.template.spec.containers[0].ports[0].containerPort: want a number that fits into int32, not the number 99999999999`,
		`f.yaml:17:9: spec.template.spec.containers[1]: want a map, not the text "containers"`,
		`f.yaml:18:7: spec.template.spec.restartPolcy: unknown field; did you mean "restartPolicy"?`,
	}
	var said []string
	for _, e := range o.Problems() {
		said = append(said, e.Error())
	}
	assert.Equal(t, want, said)
	assert.True(t, o.Failed())
	assert.Len(t, got.Template.Spec.Containers, 2, "what could be read is read")

	o.Errorf("spec.count", "must be positive")
	o.Errorf("spec.template.spec.containers[1].name", "required")
	assert.Len(t, o.Problems(), len(want), "nothing more is said of what could not be read")
}

func TestDecodeReadsWhatIsRight(t *testing.T) {
	o := object(t, `spec:
  name: x
  count: 3
  ratio: 1
  enabled: yes
  list: [a, "010"]
  text: {a: "n", b: "", c: ~}
  any: {x: [1]}
  template:
    spec:
      terminationGracePeriodSeconds: null
      containers:
      - {name: c, resources: {limits: {cpu: 2, memory: 1Gi}}, ports: [{containerPort: 1}], livenessProbe: {tcpSocket: {port: http}}}
      volumes:
      - {name: v, emptyDir: {}}
      - {name: s, secret: {secretName: x, defaultMode: 0400}}
`, nil)
	var got target
	o.Decode("spec", &got, Options{})
	require.Empty(t, o.Problems())
	assert.Equal(t, int32(3), *got.Count)
	assert.True(t, got.On)
	assert.Equal(t, []string{"a", "010"}, got.List)
	assert.Equal(t, map[string]string{"a": "n", "b": ""}, got.Text)
	spec := got.Template.Spec
	assert.Nil(t, spec.TerminationGracePeriodSeconds)
	assert.Equal(t, "2", spec.Containers[0].Resources.Limits.Cpu().String())
	assert.Equal(t, "http", spec.Containers[0].LivenessProbe.TCPSocket.Port.StrVal)
	assert.NotNil(t, spec.Volumes[0].EmptyDir)
	assert.Equal(t, int32(0o400), *spec.Volumes[1].Secret.DefaultMode)
}

func TestDecodeAsUpstreamDid(t *testing.T) {
	text := "spec:\n  NAME: x\n  replica_x: 2\n  other: 1\n  template: {spec: {ActiveDeadlineSeconds: 60}}\n"
	opts := Options{Lenient: true, Fold: true, Aliases: map[string]Alias{"replica_x": {Field: "replicaX", Note: "the spelling of old"}}}
	o := object(t, text, nil)
	var got target
	o.Decode("spec", &got, opts)
	require.False(t, o.Failed())
	assert.Equal(t, `f.yaml:2:3: warning: spec.NAME: written "NAME"; read as "name"
f.yaml:3:3: warning: spec.replica_x: the spelling of old; read as replicaX
f.yaml:4:3: warning: spec.other: unknown field ignored
f.yaml:5:21: warning: spec.template.spec.ActiveDeadlineSeconds: written "ActiveDeadlineSeconds"; read as "activeDeadlineSeconds"`, lines(o.Problems()))
	assert.Equal(t, "x", got.Name)
	assert.Equal(t, 2, got.ReplicaX)
	assert.Equal(t, int64(60), *got.Template.Spec.ActiveDeadlineSeconds)

	o = object(t, "spec: {name: a, Name: b}\n", nil)
	o.Decode("spec", &got, opts)
	assert.Contains(t, lines(o.Problems()), `"Name" and "name" both mean "name": keep one of them`)
	o = object(t, text, nil)
	o.Decode("spec", &got, Options{})
	assert.Len(t, o.Problems(), 4, "another case is an unknown field elsewhere")
}

func TestPositionsOfWhatAnOverlayChanged(t *testing.T) {
	o := object(t, "spec:\n  roles:\n  - name: a\n  - name: b\n    m: 1\n", func(m map[string]any) {
		spec := m["spec"].(map[string]any)
		roles := spec["roles"].([]any)
		spec["roles"] = []any{map[string]any{"name": "new", "m": 1}, roles[1], roles[0]}
		roles[0].(map[string]any)["m"] = 2
	})
	for field, want := range map[string]string{
		"spec.roles[1].m":       "f.yaml:5:5: spec.roles[1].m: x",
		"spec.roles[2].name":    "f.yaml:3:5: spec.roles[2].name: x",
		"spec.roles[2].missing": "f.yaml:3:5: spec.roles[2].missing: x",
		"spec.roles[2].m":       "f.yaml:1: spec.roles[2].m: x (set by an overlay)",
		"spec.roles[0].m":       "f.yaml:1: spec.roles[0].m: x (set by an overlay)",
	} {
		p := NewObject(o.built, o.source, repo.Settings{})
		p.Errorf(field, "x")
		assert.Equal(t, want, lines(p.Problems()))
	}
	p := NewObject(o.built, nil, repo.Settings{})
	p.Warnf("spec", "x")
	assert.Equal(t, "warning: spec: x", lines(p.Problems()))
	assert.False(t, p.Failed())
}

func TestDecodeTakesEveryNumber(t *testing.T) {
	for _, n := range []any{2, int64(2), uint64(2), 2.0, json.Number("2")} {
		var got target
		o := NewObject(map[string]any{"spec": map[string]any{"count": n}}, nil, repo.Settings{})
		o.Decode("spec", &got, Options{})
		require.Empty(t, o.Problems())
		assert.Equal(t, int32(2), *got.Count)
	}
}

func TestJobReadsMetadata(t *testing.T) {
	o := object(t, `apiVersion: a/v1
kind: K
metadata:
  name: x
  labels: {team: nlp, "b ad": "x y"}
  uid: abc
  clusterName: ""
  annotations:
    trainyard.dev/rerun: "7"
    trainyard.dev/suspend: "true"
    trainyard.dev/stop: "yes"
    trainyard.dev/onChange: Restrt
    trainyard.dev/reruns: "1"
    other: "1"
status: {phase: Done}
`, nil)
	job := o.Job(Options{})
	assert.Equal(t, repo.Key{Namespace: "default", Name: "x"}, job.Key)
	assert.Equal(t, "7", job.Rerun)
	assert.True(t, job.Suspend)
	assert.Equal(t, "nlp", job.Labels["team"])
	said := lines(o.Problems())
	assert.Contains(t, said, `warning: status: status and server-set metadata ignored`)
	assert.Contains(t, said, `trainyard.dev/stop"]: want "true" or "false", not the text "yes"`)
	assert.Contains(t, said, `"Restrt" is not one of Finish, Restart, Ignore; did you mean "Restart"?`)
	assert.Contains(t, said, `trainyard.dev/reruns"]: unknown annotation ignored; did you mean "trainyard.dev/rerun"?`)
	assert.Contains(t, said, `not a label's value`)
	assert.NotContains(t, said, "other")
}

func TestNamesThatFitNowhere(t *testing.T) {
	for name, want := range map[string]string{
		"a-b1": "", "My_Job": "; my-job would do", "a.b": "; a-b would do", "-a": `"-a" may have only`,
		"x234567890123456789012345678901234567890123456789012345678901234": "has 64 characters",
	} {
		o := NewObject(map[string]any{"metadata": map[string]any{"name": name}}, nil, repo.Settings{})
		o.Job(Options{})
		assert.Contains(t, lines(o.Problems()), want)
		assert.Equal(t, want != "", o.Failed(), name)
	}
}

func TestCheckTemplate(t *testing.T) {
	tests := []struct{ name, spec, want string }{
		{"no container", `{}`, `t.spec.containers: at least one container is required`},
		{"fine", `{containers: [{name: a, image: "r.io:5/x/y:z"}, {name: b, image: "a/b@sha256:0123456789abcdef0123456789abcdef"}]}`, ""},
		{"twice", `{containers: [{name: a}, {name: a}]}`, `t.spec.containers[1].name: container "a" is defined twice, first as t.spec.containers[0]`},
		{"twice, as init", `{initContainers: [{name: a}], containers: [{name: a}]}`, `container "a" is defined twice, first as t.spec.initContainers[0]`},
		{"no name", `{containers: [{image: a}]}`, `t.spec.containers[0].name: required`},
		{"bad name", `{containers: [{name: A_b}]}`, `a-b would do`},
		{"placeholder", `{containers: [{name: a, image: x/<SAMPLE IMAGE>}]}`, `t.spec.containers[0].image: "x/<SAMPLE IMAGE>" is not a valid image reference (placeholder left in?)`},
		{"upper case", `{containers: [{name: a, image: Foo/bar}]}`, ``},
		{"upper case repository", `{containers: [{name: a, image: foo/Bar}]}`, `no upper-case letters`},
		{"volume", `{volumes: [{name: data}], containers: [{name: a, volumeMounts: [{name: dat, mountPath: /d}]}]}`, `volumeMounts[0].name: the pod declares no volume "dat"; did you mean "data"?`},
		{"unmounted", `{volumes: [{name: data}], containers: [{name: a}]}`, `warning: t.spec.volumes[0]: volume "data" is mounted by no container`},
		{"volume twice", `{volumes: [{name: d}, {name: d}], containers: [{name: a, volumeMounts: [{name: d, mountPath: /d}]}]}`, `volume "d" is declared twice`},
		{"mount twice", `{volumes: [{name: d}], containers: [{name: a, volumeMounts: [{name: d, mountPath: /d}, {name: d, mountPath: /d}]}]}`, `volumeMounts[1].mountPath: "/d" is mounted twice`},
		{"env", `{containers: [{name: a, env: [{name: "a=b"}]}]}`, `"a=b" cannot be the name of a variable`},
		{"gpu request", `{containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}}}]}`, `warning: t.spec.containers[0].resources.requests["nvidia.com/gpu"]: has no matching limit`},
		{"retired gpu", `{containers: [{name: a, resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1}}}]}`, `warning: t.spec.containers[0].resources.limits["alpha.kubernetes.io/nvidia-gpu"]: no cluster since Kubernetes 1.11 schedules it: it is nvidia.com/gpu now; write that, or gpus: {rename: {alpha.kubernetes.io/nvidia-gpu: nvidia.com/gpu}} in trainyard.yaml`},
		{"gpu request as the limit", `{containers: [{name: a, resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 2}}}]}`, ``},
		{"gpu request less", `{initContainers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}}], containers: [{name: b}]}`, `t.spec.initContainers[0].resources.requests["nvidia.com/gpu"]: 1 is not the limit, 2, and Kubernetes takes nvidia.com/gpu only if both are the same; the request can be left out`},
		{"half a gpu", `{containers: [{name: a, resources: {limits: {nvidia.com/gpu: "0.5"}}}]}`, `t.spec.containers[0].resources.limits["nvidia.com/gpu"]: 500m of it cannot be had, only a whole number`},
		{"whole in thousandths", `{containers: [{name: a, resources: {limits: {nvidia.com/gpu: "2000m", cpu: 500m}}}]}`, ``},
		{"device class", `{containers: [{name: a, resources: {requests: {deviceclass.resource.kubernetes.io/gpu.example.com: 1}, limits: {deviceclass.resource.kubernetes.io/gpu.example.com: 2}}}]}`, ``},
		{"huge pages requested", `{containers: [{name: a, resources: {requests: {hugepages-2Mi: 2Mi}, limits: {cpu: 1, hugepages-2Mi: 4Mi}}}]}`, `requests.hugepages-2Mi: 2Mi is not the limit, 4Mi`},
		{"claim and a part of it", `{resourceClaims: [{name: a, resourceClaimName: x}], containers: [{name: a, resources: {claims: [{name: a, request: b}, {name: a}]}}]}`, `claims[1].name: resource claim "a" is used twice`},
		{"no vendor", `{containers: [{name: a, resources: {limits: {gpu: 1}}}]}`, `t.spec.containers[0].resources.limits.gpu: "gpu" is no resource of containers`},
		{"misspelt", `{containers: [{name: a, resources: {limits: {memmory: 1Gi}}}]}`, `"memmory" is no resource of containers; did you mean "memory"?; devices are named with their vendor`},
		{"huge pages", `{containers: [{name: a, resources: {limits: {memory: 1Gi, hugepages-2Mi: 4Mi, ephemeral-storage: 1Gi}}}]}`, ``},
		{"claim", `{resourceClaims: [{name: gpu, resourceClaimTemplateName: x}], containers: [{name: a, resources: {claims: [{name: gpu, request: one}, {name: gpu, request: two}]}}]}`, ``},
		{"claim of nobody", `{resourceClaims: [{name: gpus, resourceClaimName: x}], containers: [{name: a, resources: {claims: [{name: gpu}]}}]}`, `t.spec.containers[0].resources.claims[0].name: the pod declares no resource claim "gpu"; did you mean "gpus"?`},
		{"claim twice", `{resourceClaims: [{name: a, resourceClaimName: x}, {name: a, resourceClaimName: y}], containers: [{name: a}]}`, `t.spec.resourceClaims[1].name: resource claim "a" is declared twice`},
		{"claim used twice", `{resourceClaims: [{name: a, resourceClaimName: x}], containers: [{name: a, resources: {claims: [{name: a}, {name: a}]}}]}`, `claims[1].name: resource claim "a" is used twice`},
		{"claim of nothing", `{resourceClaims: [{name: a}], containers: [{name: a}]}`, `t.spec.resourceClaims[0]: want either resourceClaimName or resourceClaimTemplateName`},
		{"claim of both", `{resourceClaims: [{name: a, resourceClaimName: x, resourceClaimTemplateName: y}], containers: [{name: a}]}`, `want either`},
		{"claim's name", `{resourceClaims: [{name: A_b, resourceClaimName: x}], containers: [{name: a, resources: {claims: [{}]}}]}`, `a-b would do`},
		{"request over limit", `{containers: [{name: a, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}`, `2 is more than the limit, 1`},
		{"negative", `{containers: [{name: a, resources: {limits: {cpu: -1}}}]}`, `must not be negative`},
		{"port", `{containers: [{name: a, ports: [{containerPort: 0}]}]}`, `0 is no port`},
		{"restart policy", `{restartPolicy: OnFail, containers: [{name: a}]}`, `"OnFail" is not one of Always, OnFailure, Never`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var template corev1.PodTemplateSpec
			require.NoError(t, yaml.Unmarshal([]byte("spec: "+tt.spec), &template))
			o := NewObject(nil, nil, repo.Settings{})
			CheckTemplate(o, "t", &template)
			if tt.want == "" {
				require.Empty(t, o.Problems())
				return
			}
			assert.Contains(t, lines(o.Problems()), tt.want)
		})
	}
}

// TestHostileObjectsCostLittle reads files that make a naive reader quadratic.
// Each takes milliseconds; the deadline is for slow machines.
func TestHostileObjectsCostLittle(t *testing.T) {
	repeat := func(format string) string {
		var b strings.Builder
		for i := range MaxKeys - 10 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"wrong types": "spec:\n  text:\n" + repeat("    k%d: 1\n"), "unknown fields": "spec:\n" + repeat("  k%d: 1\n"),
		"old booleans": "spec:\n  text:\n" + repeat("    k%d: \"y\"\n"), "mounts": "spec:\n  template:\n    spec:\n      containers:\n      - name: a\n        volumeMounts:\n" + repeat("        - {name: v%d}\n"),
		"wrong items": "spec:\n  list:\n" + repeat("  - {a: %d}\n"),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			o := object(t, text, nil)
			var got target
			o.Decode("spec", &got, Options{})
			CheckTemplate(o, "spec.template", &got.Template)
			assert.LessOrEqual(t, len(o.Problems()), 2*maxProblems)
			assert.True(t, o.Failed())
			assert.Less(t, time.Since(start), 5*time.Second)
		})
	}
}

// TestWarningsNeverHideAnError guards against a file that is accepted because
// its warnings left no place for its error.
func TestWarningsNeverHideAnError(t *testing.T) {
	o := NewObject(nil, nil, repo.Settings{})
	for i := range 3 * maxProblems {
		o.Warnf(fmt.Sprint(i), "look")
	}
	o.Errorf("x", "wrong")
	assert.True(t, o.Failed())
	errs, warnings := repo.Split(o.Problems())
	assert.Len(t, errs, 1)
	assert.Len(t, warnings, maxProblems)
}

func BenchmarkRead(b *testing.B) {
	text := []byte("apiVersion: a/v1\nkind: K\nmetadata: {name: x}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: a, image: b, command: [c], env: [{name: A, value: b}], resources: {limits: {cpu: 1}}}\n")
	for b.Loop() {
		docs, _ := Parse("f.yaml", text)
		var built map[string]any
		if docs[0].Root.Decode(&built) != nil {
			b.Fatal("not read")
		}
		o := NewObject(built, docs[0], repo.Settings{})
		var got target
		o.Decode("spec", &got, Options{})
		if o.Failed() {
			b.Fatal(o.Problems())
		}
	}
}
