package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// rehearse asks a cluster whether it would take a pod of each role of the jobs,
// and tells how gangs would start. An error is that it could not be asked.
func rehearse(ctx context.Context, notes io.Writer, p parts, o clusterOptions, environment string, jobs []repo.Job) (problems []*repo.Error, err error) {
	server, err := p.Cluster(o, environment)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	for i := range jobs {
		job := &jobs[i]
		pods, err := firstAttempt(environment, job, func(role *repo.Role) int32 { return min(1, role.Replicas) })
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			refusal := server.Rehearse(ctx, []*corev1.Pod{pod})
			if refusal == nil {
				continue
			}
			if !refused(refusal) {
				return nil, fmt.Errorf("ask the cluster about %s: %w", job.Key, refusal)
			}
			problems = append(problems, &repo.Error{
				File: job.Source.File, Line: job.Source.Line, Field: "role " + pod.Labels[repo.LabelRole],
				Message: fmt.Sprintf("the cluster refuses a pod of %s: %s", job.Key, refusal), Warning: strings.Contains(refusal.Error(), "exceeded quota"), // that may pass
			})
		}
		if !job.Gang {
			continue
		}
		how, err := server.Gang(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("ask the cluster about gangs: %w", err)
		}
		note := repo.Error{File: job.Source.File, Line: job.Source.Line, Message: fmt.Sprintf("gang of %s: %s", job.Key, how)}
		fmt.Fprintln(notes, note.Error())
	}
	return problems, nil
}

// refused says whether an error is the server's answer about a pod, and not
// that it could not be asked, or did not know who asks.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}
