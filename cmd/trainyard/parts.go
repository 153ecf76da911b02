package main

import (
	"context"
	"io"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// parts are the other folders of the program as far as commands use them.
type parts struct {
	// Daemon is the body of run. With Once it returns errProblems, or another
	// error, when a job failed.
	Daemon func(context.Context, runOptions, streams) error
	Demo   func(context.Context, demoOptions, streams) error
	// Shim holds one pod of the local runner, in its directory, and returns an exit code.
	Shim func(dir string) int
	// Render reads a working tree for an environment: all jobs, or those of the
	// paths given, which may lie anywhere in it.
	Render func(ctx context.Context, tree fs.FS, environment string, paths []string) (repo.Definitions, error)
	// Fetch opens a branch of the remote, with dir for its own use.
	Fetch func(ctx context.Context, o remoteOptions, dir string) (remoteBranch, error)
	// Records reads an environment's records from a tree that Fetch gave.
	Records func(tree fs.FS, layout repo.Layout, environment string) ([]repo.Record, error)
	// Pods opens the local runner's pods; fs.ErrNotExist says that there are none.
	Pods func(stateDir, environment string) (pods, error)
	// Cluster opens an environment's pods on a cluster, without asking it for anything yet.
	Cluster func(o clusterOptions, environment string) (cluster, error)
	// Skeleton is what init writes.
	Skeleton func() fs.FS
}

// remoteBranch reads the newest commit of the status branch.
type remoteBranch interface {
	// Read returns its tree, nil if there is no such branch, and whether it is
	// another one than the last time.
	Read(ctx context.Context) (tree fs.FS, changed bool, err error)
	Close() error
}

// pods reads logs where pods run.
type pods interface {
	Jobs(ctx context.Context) ([]repo.Key, error)
	Pods(ctx context.Context, key repo.Key) ([]corev1.Pod, error)
	Log(ctx context.Context, namespace, name, container string, tail int64, follow bool) (io.ReadCloser, error)
	Close() error
}

// cluster is where pods run, and what would take new ones.
type cluster interface {
	pods
	// Rehearse asks whether pods would be taken, and makes none: the answer to
	// the first that would not.
	Rehearse(ctx context.Context, pods []*corev1.Pod) error
	// Gang says how the pods of a job would start together, and why.
	Gang(ctx context.Context, job *repo.Job) (string, error)
}
