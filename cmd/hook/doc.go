// Package hook is what the daemon serves: webhooks of Git forges, which hasten
// a fetch and do nothing else, probes, and metrics. It never believes what a
// webhook says, keeps no request's body, and says to a stranger no more than no.
package hook
