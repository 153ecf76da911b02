// Package render turns a snapshot of the watched repository and an environment
// into jobs with finished pod templates: units are built with kustomize, read
// by their format, and their pods patched by the environment's overlay. It
// never reads anything outside of the snapshot, never reaches the network,
// starts no process, and knows neither Git remotes nor clusters.
package render
