package pytorch

import (
	"encoding/json"
	"fmt"

	"github.com/trainyard/trainyard/render/kubeflow"
)

// spec is a PyTorchJob's.
type spec struct {
	kubeflow.Spec
	// NprocPerNode is how many processes torchrun starts in each replica: auto
	// (default), cpu, gpu or a number. A number multiplies WORLD_SIZE.
	NprocPerNode *number `json:"nprocPerNode"`
	// ElasticPolicy lets torchrun go on with fewer workers.
	ElasticPolicy *elasticPolicy `json:"elasticPolicy"`
	// Replicas by type, in any case: Master, at most one, and Worker.
	Replicas map[string]*kubeflow.ReplicaSpec `json:"pytorchReplicaSpecs"`
}

type elasticPolicy struct {
	// MinReplicas and MaxReplicas of workers become PET_NNODES. One of them is
	// the other's default, the number of workers is that of both.
	MinReplicas *int32 `json:"minReplicas"`
	MaxReplicas *int32 `json:"maxReplicas"`
	// RdzvBackend is c10d (default), etcd or etcd-v2.
	RdzvBackend string `json:"rdzvBackend"`
	// RdzvHost and RdzvPort are where workers meet; worker 0 and its port by default.
	RdzvHost *string `json:"rdzvHost"`
	RdzvPort *int32  `json:"rdzvPort"`
	// RdzvID becomes PET_RDZV_ID.
	RdzvID *string `json:"rdzvId"`
	// RdzvConf becomes PET_RDZV_CONF: key=value,key=value.
	RdzvConf []rdzvConf `json:"rdzvConf"`
	// Standalone sets PET_STANDALONE.
	Standalone bool `json:"standalone"`
	// NProcPerNode is the place of nprocPerNode before v1.7 of the operator.
	NProcPerNode *int32 `json:"nProcPerNode"`
	// MaxRestarts becomes PET_MAX_RESTARTS: torchrun restarts, not the pod.
	MaxRestarts *int32 `json:"maxRestarts"`
	// Metrics made an autoscaler; here a warning, and replicas stay as written.
	Metrics []any `json:"metrics"`
}

type rdzvConf struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// number is text upstream, and people write a number.
type number string

// UnmarshalJSON reads "auto", "4" or 4.
func (n *number) UnmarshalJSON(data []byte) error {
	var text string
	var count int32
	switch {
	case json.Unmarshal(data, &text) == nil:
	case json.Unmarshal(data, &count) == nil:
		text = fmt.Sprint(count)
	default:
		return fmt.Errorf("want auto, cpu, gpu or a number, not %s", data)
	}
	*n = number(text)
	return nil
}
