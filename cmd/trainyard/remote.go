package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// layout says where records lie on the status branch.
func (o *remoteOptions) layout() repo.Layout {
	if o.StatusBranch == o.Branch {
		return repo.Layout{Root: repo.StatusDir}
	}
	return repo.Layout{}
}

// records is the open status branch of a command.
type records struct {
	parts  parts
	opts   remoteOptions
	dir    string
	branch remoteBranch
}

// openRecords opens the status branch of --repo, or of the checkout's origin.
func openRecords(cmd *cobra.Command, sys system, p parts, o remoteOptions) (*records, error) {
	if err := completeFromCheckout(cmd, sys, &o); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trainyard-read-")
	if err != nil {
		return nil, fmt.Errorf("make a directory to fetch into: %w", err)
	}
	branch, err := p.Fetch(cmd.Context(), o, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &records{parts: p, opts: o, dir: dir, branch: branch}, nil
}

func (r *records) close() error { return errors.Join(r.branch.Close(), os.RemoveAll(r.dir)) }

// read returns the branch's tree and the records in it.
func (r *records) read(ctx context.Context) (fs.FS, []repo.Record, bool, error) {
	tree, changed, err := r.branch.Read(ctx)
	if err != nil || tree == nil {
		return nil, nil, changed, err
	}
	all, err := r.parts.Records(tree, r.opts.layout(), r.opts.Environment)
	if err != nil {
		return nil, nil, changed, fmt.Errorf("read records of %s: %w", redacted(r.opts.Repo), err)
	}
	return tree, all, changed, nil
}

// completeFromCheckout takes the remote from the checkout around the working
// directory when --repo is not given: its origin, or itself when it has none.
func completeFromCheckout(cmd *cobra.Command, sys system, o *remoteOptions) error {
	if o.Repo == "" {
		here := checkout{ctx: cmd.Context(), dir: sys.Dir}
		top, err := here.git("rev-parse", "--show-toplevel")
		if err != nil {
			return hint(usagef("%s: --repo is missing and there is no checkout here", cmd.Name()),
				"go to a checkout of the repository, or give its URL as --repo or in %s", variable("repo"))
		}
		o.Repo = strings.TrimSpace(top)
		if origin, err := here.git("remote", "get-url", "origin"); err == nil {
			o.Repo = absoluteRepo(strings.TrimSpace(origin), system{Dir: o.Repo})
		}
	}
	return o.complete(cmd, sys)
}

// errNoRecord says what to look at when a job has no record.
func (r *records) errNoRecord(job string, known []repo.Record) error {
	err := fmt.Errorf("%s has no record in environment %s of %s, branch %s", job, r.opts.Environment, redacted(r.opts.Repo), r.opts.StatusBranch)
	if len(known) == 0 {
		return hint(err, "there are no records at all: does a daemon run for it (trainyard run), and for this environment (--env)?")
	}
	return hint(err, "trainyard status lists the jobs that have one")
}

// findRecord finds a job by name or namespace/name.
func (r *records) findRecord(job string, all []repo.Record) (*repo.Record, error) {
	var found []*repo.Record
	for i := range all {
		if k := all[i].Key(); k.String() == job || k.Name == job {
			found = append(found, &all[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, r.errNoRecord(job, all)
	case 1:
		return found[0], nil
	}
	return nil, usagef("%s is a job in several namespaces: name it as %s or %s", job, found[0].Key(), found[1].Key())
}
