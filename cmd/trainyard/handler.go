package main

import (
	"net/http"

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/cmd/hook"
)

// newHandler is what --listen serves.
func newHandler(d *daemon.Daemon, o runOptions, metrics *hook.Metrics, bell hook.Bell) (http.Handler, error) {
	secret, err := readSecret(o.WebhookSecret)
	if err != nil {
		return nil, err
	}
	return hook.Handler(hook.Options{Secret: secret, Branch: o.Branch, Hasten: bell.Ring, Ready: d.Ready, Metrics: metrics, Now: now}), nil
}
