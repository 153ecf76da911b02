package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	_ "time/tzdata" // schedules name time zones, also where the machine has no database of them

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/render"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/local"
	"github.com/trainyard/trainyard/status"
	"github.com/trainyard/trainyard/sync"
)

// connected are the real parts.
func connected() parts {
	return parts{
		Daemon:   runDaemon,
		Demo:     runDemo,
		Shim:     local.ShimMain,
		Render:   renderTree,
		Fetch:    fetchBranch,
		Records:  readRecords,
		Pods:     openPods,
		Cluster:  openCluster,
		Skeleton: repo.Skeleton,
	}
}

// remote says how the remote is reached.
func (o *remoteOptions) remote() gitsync.RemoteOptions {
	return gitsync.RemoteOptions{
		URL: o.Repo, User: o.Username, TokenFile: o.TokenFile, CAFile: o.CAFile, Proxy: o.Proxy,
		SSHKeyFile: o.SSHKey, SSHAgent: o.SSHAgent, KnownHosts: o.KnownHosts,
	}
}

// renderTree renders a working tree, as validate and render see it: all of it, or some paths.
func renderTree(ctx context.Context, tree fs.FS, environment string, paths []string) (repo.Definitions, error) {
	r, snapshot := render.New(environment), render.Dir(tree, "")
	if len(paths) > 0 {
		return r.RenderPaths(ctx, snapshot, paths...)
	}
	return r.Render(ctx, snapshot)
}

// branch reads the status branch through a mirror of its own.
type branch struct {
	remote *gitsync.Remote
	mirror *gitsync.Mirror
	name   string
	last   string
}

func fetchBranch(ctx context.Context, o remoteOptions, dir string) (remoteBranch, error) {
	remote, err := gitsync.NewRemote(o.remote())
	if err != nil {
		return nil, err
	}
	mirror, err := gitsync.Open(ctx, gitsync.Options{Dir: dir, Read: remote})
	if err != nil {
		remote.Close()
		return nil, err
	}
	return &branch{remote: remote, mirror: mirror, name: o.StatusBranch}, nil
}

// Read implements remoteBranch.
func (b *branch) Read(ctx context.Context) (fs.FS, bool, error) {
	snap, _, err := b.mirror.Fetch(ctx, b.name)
	if errors.Is(err, gitsync.ErrNoBranch) {
		changed := b.last != ""
		b.last = ""
		return nil, changed, nil
	}
	if err != nil {
		return nil, false, err
	}
	changed := b.last != snap.Revision()
	b.last = snap.Revision()
	return snap, changed, nil
}

// Close implements remoteBranch.
func (b *branch) Close() error {
	b.remote.Close()
	return b.mirror.Close()
}

// readRecords reads what can be read; records that cannot are an error beside them.
func readRecords(tree fs.FS, layout repo.Layout, environment string) ([]repo.Record, error) {
	records, problems := status.Read(tree, layout, environment)
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return records, errors.Join(errs...)
}

// openPods opens the local runner's pods where a daemon left them.
func openPods(stateDir, environment string) (pods, error) {
	dir := daemon.LocalDir(stateDir)
	if _, err := os.Stat(filepath.Join(dir, "pods")); err != nil {
		return nil, fmt.Errorf("open pods: %w", err)
	}
	return local.Open(dir, environment)
}

// now is the time of what a command does.
func now() time.Time { return time.Now() }
