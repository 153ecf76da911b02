package main

import (
	"net/http"

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/cmd/hook"
	repo "github.com/trainyard/trainyard/repo-layout"
)

// newHandler is what --listen serves.
func newHandler(d *daemon.Daemon, o runOptions, metrics *hook.Metrics, bell hook.Bell) (http.Handler, error) {
	secret, err := readSecret(o.WebhookSecret)
	if err != nil {
		return nil, err
	}
	state := func() hook.State {
		s := hook.State{Leads: d.Leads(), Healthy: d.Healthy() == nil, Unpublished: d.Unpublished(), Phases: map[repo.Phase]int{}}
		for _, r := range d.Records() {
			s.Phases[r.Phase]++
		}
		return s
	}
	return hook.Handler(hook.Options{Secret: secret, Branch: o.Branch, Hasten: bell.Ring, Ready: d.Ready, Metrics: metrics, State: state, Now: now}), nil
}
