package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// spoils is a fault of the server that answers by f.
func spoils(f func(y *yard, over <-chan struct{}) spoiler) func(y *yard) func() {
	return func(y *yard) func() {
		over := make(chan struct{})
		end := y.server.spoiled(f(y, over))
		return func() {
			end()
			close(over)
		}
	}
}

func always(code int) func(y *yard) func() {
	return spoils(func(*yard, <-chan struct{}) spoiler { return answers(code) })
}

// serverFaults are those of what lies between the daemon and the repository.
func serverFaults() []outside {
	return []outside{
		{name: "the Git server is stopped", begin: func(y *yard) func() {
			y.server.down()
			return y.server.up
		}},
		{name: "the Git server is slow", begin: spoils(func(_ *yard, over <-chan struct{}) spoiler { return slowly(over) })},
		{name: "the Git server is silent", begin: spoils(func(_ *yard, over <-chan struct{}) spoiler {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				<-over
				next.ServeHTTP(w, r)
			}
		})},
		{name: "the Git server cuts connections in the middle of a pack", begin: spoils(func(y *yard, _ <-chan struct{}) spoiler {
			var mu sync.Mutex // the server's requests come side by side, and beside the scheme's own draws
			rng := rand.New(rand.NewPCG(y.rng.Uint64(), 0))
			return cutting(func() int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(400)
			})
		})},
		{name: "the Git server takes pushes and never says so", begin: spoils(func(*yard, <-chan struct{}) spoiler {
			return cutting(func() int { return 0 })
		})},
		{name: "the Git server answers 401", begin: always(http.StatusUnauthorized)},
		{name: "the Git server answers 403", begin: always(http.StatusForbidden)},
		{name: "the Git server answers 429", begin: always(http.StatusTooManyRequests)},
		{name: "the Git server answers 500", begin: always(http.StatusInternalServerError)},
		{name: "the repository is away", deaf: true, begin: func(y *yard) func() {
			require.NoError(y.t, os.Rename(y.remote, y.remote+away))
			return func() { require.NoError(y.t, os.Rename(y.remote+away, y.remote)) }
		}},
	}
}

func hook(name, script string) func(y *yard) func() {
	return func(y *yard) func() {
		file := filepath.Join(y.remote, "hooks", name)
		require.NoError(y.t, os.WriteFile(file+".new", []byte("#!/bin/sh\n"+script), 0o755))
		require.NoError(y.t, os.Rename(file+".new", file))
		return func() { require.NoError(y.t, os.Remove(file)) }
	}
}

// recordFaults are those of the branches: what others forbid and do there.
func recordFaults() []outside {
	status := "refs/heads/" + repo.StatusBranch
	return []outside{
		{name: "a hook refuses every push", deaf: true, begin: hook("pre-receive", "echo no pushes today >&2; exit 1\n")},
		{name: "the status branch is protected", begin: hook("update", "[ \"$1\" != "+status+" ] || { echo protected branch >&2; exit 1; }\n")},
		{name: "somebody else pushes to the status branch", begin: otherPusher},
		{name: "the history of the watched branch is rewritten", begin: func(y *yard) func() {
			y.git(y.checkout, "checkout", "-q", "--orphan", fmt.Sprintf("again-%d", y.rng.Uint64()))
			y.git(y.checkout, "add", "-A")
			y.git(y.checkout, "commit", "-q", "-m", "all of it, anew")
			y.git(y.checkout, "push", "-q", "--force", "origin", "HEAD:main")
			return func() {}
		}},
		{name: "an older state of the status branch is put back", harm: harm{rewrites: true}, begin: func(y *yard) func() {
			y.eventually("there are two commits of records", func() bool {
				_, err := y.tryGit(y.remote, "rev-parse", "--verify", "-q", repo.StatusBranch+"~1")
				return err == nil
			})
			y.git(y.remote, "update-ref", status, repo.StatusBranch+"~1")
			return func() {}
		}},
		{name: "the status branch is deleted", harm: harm{rewrites: true}, begin: func(y *yard) func() {
			y.eventually("there are records", func() bool { return y.tip() != "" })
			y.git(y.remote, "update-ref", "-d", status)
			return func() {}
		}},
	}
}

// otherPusher pushes notes to the status branch as fast as it can.
func otherPusher(y *yard) func() {
	other := filepath.Join(y.t.TempDir(), "other")
	y.eventually("there are records", func() bool { return y.tip() != "" })
	y.git("", "clone", "-q", "-b", repo.StatusBranch, y.remote, other)
	over, done := make(chan struct{}), make(chan int)
	go func() {
		landed := 0
		defer func() { done <- landed }()
		for {
			select {
			case <-over:
				if landed > 0 || y.t.Context().Err() != nil {
					return
				}
			default:
			}
			_, _ = y.tryGit(other, "fetch", "-q", "origin", repo.StatusBranch)
			_, _ = y.tryGit(other, "reset", "-q", "--hard", "FETCH_HEAD")
			_, _ = y.tryGit(other, "commit", "-q", "--allow-empty", "-m", "a note at "+time.Now().String())
			if _, err := y.tryGit(other, "push", "-q", "origin", "HEAD:"+repo.StatusBranch); err == nil {
				landed++
			}
		}
	}()
	return func() {
		close(over)
		landed := <-done
		y.say("%d pushes of somebody else have landed", landed)
		require.Positive(y.t, landed)
	}
}
