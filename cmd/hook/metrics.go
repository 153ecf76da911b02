package hook

import (
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Metrics are the daemon's numbers, in a registry of their own. Its methods may
// be called from anywhere.
type Metrics struct {
	registry       *prometheus.Registry
	syncs          *prometheus.CounterVec
	lastSync       prometheus.Gauge
	renders        prometheus.Counter
	publishes      *prometheus.CounterVec
	publishRetries prometheus.Counter
	unpublished    prometheus.Gauge
	leader         prometheus.Gauge
	backend        prometheus.Gauge
	jobs           *prometheus.GaugeVec
	attempts       prometheus.Counter
	outcomes       *prometheus.CounterVec
	passes         prometheus.Histogram
	webhooks       *prometheus.CounterVec
}

// NewMetrics makes Metrics, with those of the process and of Go beside them.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry:       prometheus.NewRegistry(),
		syncs:          vector("syncs_total", "Looks at the Git remote, by result (ok, error).", "result"),
		lastSync:       gauge("last_sync_timestamp_seconds", "When the Git remote was last seen, in Unix seconds."),
		renders:        counter("renders_total", "Revisions rendered."),
		publishes:      vector("publishes_total", "Pushes of records, by result (ok, error).", "result"),
		publishRetries: counter("publish_retries_total", "Pushes of records that lost a race and were made again."),
		unpublished:    gauge("records_unpublished", "Records that have not reached the Git remote yet."),
		leader:         gauge("leader", "1 if this daemon leads, 0 while it stands by for another one."),
		backend:        gauge("backend_up", "1 if it is known what runs, 0 while the API server is away."),
		attempts:       counter("task_attempts_started_total", "Pods created."),
		outcomes:       vector("task_outcomes_total", "Task attempts that have ended, by result and class of failure.", "result", "class"),
		webhooks:       vector("webhooks_total", "Webhooks, by result (accepted, refused).", "result"),
		jobs:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "trainyard_jobs", Help: "Jobs by phase."}, []string{"phase"}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trainyard_pass_duration_seconds", Help: "Time of one pass over a job.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "trainyard_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.syncs, m.lastSync, m.renders, m.publishes, m.publishRetries, m.unpublished, m.leader, m.backend, m.jobs,
		m.attempts, m.outcomes, m.passes, m.webhooks, build, goCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, r := range [...]string{"ok", "error"} { // so that a rate over them has a beginning
		m.syncs.WithLabelValues(r)
		m.publishes.WithLabelValues(r)
	}
	return m
}

// goCollector tells beside its usual numbers what the last garbage collection
// found alive: all others go up and down with the collector's work.
func goCollector() prometheus.Collector {
	return collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
		collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}))
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "trainyard_" + name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "trainyard_" + name, Help: help})
}

func vector(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trainyard_" + name, Help: help}, labels)
}

// handler answers with the numbers as they are when it is asked.
func (m *Metrics) handler(state func() State) http.Handler {
	next := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if state != nil {
			m.set(state())
		}
		next.ServeHTTP(w, r)
	})
}

// Synced counts a look at the remote that ended at a time.
func (m *Metrics) Synced(at time.Time, err error) {
	if err != nil {
		m.syncs.WithLabelValues("error").Inc()
		return
	}
	m.syncs.WithLabelValues("ok").Inc()
	m.lastSync.Set(float64(at.UnixMilli()) / 1000)
}

// Rendered counts a revision.
func (m *Metrics) Rendered() { m.renders.Inc() }

// Contended counts races that a push of records lost on its way.
func (m *Metrics) Contended(times int) { m.publishRetries.Add(float64(times)) }

// Published counts a push of records.
func (m *Metrics) Published(err error) {
	if err != nil {
		m.publishes.WithLabelValues("error").Inc()
		return
	}
	m.publishes.WithLabelValues("ok").Inc()
}

// State is what the daemon has in hand at a time.
type State struct {
	Leads       bool
	Healthy     bool               // the backend
	Phases      map[repo.Phase]int // jobs by phase
	Unpublished int                // records that wait for the remote
}

func (m *Metrics) set(s State) {
	m.leader.Set(one(s.Leads))
	m.backend.Set(one(s.Healthy))
	m.unpublished.Set(float64(s.Unpublished))
	for _, p := range [...]repo.Phase{
		repo.PhaseInvalid, repo.PhaseScheduled, repo.PhaseWaiting, repo.PhasePending, repo.PhaseRunning, repo.PhaseRetrying,
		repo.PhaseSuspended, repo.PhaseSucceeded, repo.PhaseFailed, repo.PhaseStopped, repo.PhaseRemoved,
	} {
		m.jobs.WithLabelValues(string(p)).Set(float64(s.Phases[p]))
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// AttemptStarted counts a pod.
func (m *Metrics) AttemptStarted() { m.attempts.Inc() }

// AttemptEnded counts how a task attempt ended.
func (m *Metrics) AttemptEnded(o repo.Outcome) {
	m.outcomes.WithLabelValues(string(o.Result), string(o.Class)).Inc()
}

// PassTook counts the time of one pass over a job.
func (m *Metrics) PassTook(d time.Duration) { m.passes.Observe(d.Seconds()) }

// Webhook counts a webhook.
func (m *Metrics) Webhook(result string) { m.webhooks.WithLabelValues(result).Inc() }
