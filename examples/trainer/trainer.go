// Package trainer is the training program of the examples: softmax regression
// by synchronous data-parallel gradient descent, with workers and a parameter
// server that find each other through TF_CONFIG and exchange gradients over
// TCP. It uses the standard library alone, and is small enough to be read; it
// never pretends: the loss and the accuracy that it prints are computed.
package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Config of a process of the training.
type Config struct {
	TFConfig string // as in the environment variable TF_CONFIG
	Steps    int    // of gradient descent
	Samples  int    // of each worker's share of the data
	Rate     float64
	Out      io.Writer // progress, a line each few steps
}

// cluster is what TF_CONFIG says.
type cluster struct {
	Cluster map[string][]string `json:"cluster"`
	Task    struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	} `json:"task"`
}

// Run is a process of the training: a parameter server, which serves until ctx
// ends, or a worker, which returns when the last step is done.
func Run(ctx context.Context, c Config) error {
	if c.TFConfig == "" {
		return errors.New("TF_CONFIG is not set: run this as a task of a job with the tensorflow rendezvous")
	}
	var cl cluster
	if err := json.Unmarshal([]byte(c.TFConfig), &cl); err != nil {
		return fmt.Errorf("TF_CONFIG: %w", err)
	}
	servers := cl.Cluster["ps"]
	if len(servers) != 1 {
		return fmt.Errorf("TF_CONFIG names %d parameter servers, want 1", len(servers))
	}
	workers := len(cl.Cluster["worker"]) + len(cl.Cluster["master"]) + len(cl.Cluster["chief"])
	switch cl.Task.Type {
	case "ps":
		return serve(ctx, servers[0], workers, c)
	case "worker", "master", "chief":
		index := cl.Task.Index
		if cl.Task.Type == "worker" {
			index += len(cl.Cluster["master"]) + len(cl.Cluster["chief"])
		}
		return work(ctx, servers[0], index, c)
	}
	return fmt.Errorf("TF_CONFIG: task type %q is neither ps nor worker", cl.Task.Type)
}
