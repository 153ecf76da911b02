package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// cluster is what TF_CONFIG says.
type cluster struct {
	Cluster map[string][]string `json:"cluster"`
	Task    struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	} `json:"task"`
}

// tensorFlow is a parameter server or a worker of TF_CONFIG's cluster.
func tensorFlow(ctx context.Context, c Config) error {
	text := c.Env("TF_CONFIG")
	if text == "" {
		return errors.New("TF_CONFIG is not set: run this as a task of a job with the tensorflow rendezvous")
	}
	var cl cluster
	if err := json.Unmarshal([]byte(text), &cl); err != nil {
		return fmt.Errorf("TF_CONFIG: %w", err)
	}
	servers := cl.Cluster["ps"]
	if len(servers) != 1 {
		return fmt.Errorf("TF_CONFIG names %d parameter servers, want 1", len(servers))
	}
	workers := len(cl.Cluster["worker"]) + len(cl.Cluster["master"]) + len(cl.Cluster["chief"])
	switch cl.Task.Type {
	case "ps":
		listener, err := listen(servers[0])
		if err != nil {
			return err
		}
		return serve(ctx, listener, workers, c)
	case "worker", "master", "chief":
		index := cl.Task.Index
		if cl.Task.Type == "worker" {
			index += len(cl.Cluster["master"]) + len(cl.Cluster["chief"])
		}
		return work(ctx, servers[0], index, c)
	}
	return fmt.Errorf("TF_CONFIG: task type %q is neither ps nor worker", cl.Task.Type)
}
