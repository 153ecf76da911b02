package repo

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestObjectsAreFilledInForAnAttempt(t *testing.T) {
	template := json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hosts"},` +
		`"data":{"hosts":"{{hosts \" slots=2\\n\" \"worker\"}} slots=2\n","attempt":"{{.RunAttempt}} of {{.Run}}"}}`)
	run := &Run{ID: "j-abc", Job: Job{Roles: []Role{{Name: "worker", Replicas: 2}}, Objects: []Object{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "hosts", Raw: template, Expand: true},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "own", Raw: json.RawMessage(`{"data":{"a":"{{.Run}}"}}`)},
	}}}
	at := func(task Task) Address { return Address{Host: task.String() + ".x", Port: 1} }
	objects, err := run.Objects(3, at)
	require.NoError(t, err)
	var m corev1.ConfigMap
	require.NoError(t, json.Unmarshal(objects[0].Raw, &m))
	assert.Equal(t, map[string]string{"hosts": "worker-0.x slots=2\nworker-1.x slots=2\n", "attempt": "3 of j-abc"}, m.Data)
	assert.Equal(t, "hosts", m.Name)
	assert.False(t, objects[0].Expand, "what is filled in is not filled in again")
	assert.Equal(t, run.Job.Objects[1], objects[1], "a user's text is no template")
	assert.Equal(t, template, run.Job.Objects[0].Raw, "the definition stays as it is")
	assert.True(t, run.Job.Objects[0].Expand)

	run.Job.Objects[0].Raw = json.RawMessage(`{"data":{"a":"{{.Nope}}"}}`)
	_, err = run.Objects(0, at)
	assert.ErrorContains(t, err, "expand ConfigMap hosts: data a:")
}
