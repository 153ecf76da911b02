package local

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// step does what can be done now and says whether the pod has ended.
func (s *shim) step(now time.Time) bool {
	for _, c := range s.containers {
		if c.step == ending {
			s.collect(c, now)
		}
	}
	if s.stop != nil {
		return s.stopped(now)
	}
	if failed := s.initialize(now); failed {
		return s.stopSidecars(now)
	}
	if !s.initialized() {
		return s.stop != nil && s.stopped(now)
	}
	mains := true
	for _, c := range s.of(mainContainer) {
		s.due(c, now)
		mains = mains && c.step == over
	}
	if s.stop != nil {
		return s.stopped(now)
	}
	if mains {
		return s.stopSidecars(now)
	}
	s.status.Phase = corev1.PodRunning
	return false
}

// initialize runs init containers one after another; a sidecar among them only
// has to have been started. It says whether one has failed for good.
func (s *shim) initialize(now time.Time) (failed bool) {
	for _, c := range s.containers {
		switch {
		case c.kind == mainContainer:
			return false
		case c.kind == sidecarContainer:
			s.due(c, now)
			if !c.begun {
				return false
			}
		case c.step == over && c.code() == 0:
		case c.step == over:
			return true
		default:
			s.due(c, now)
			if c.step != over || c.code() != 0 {
				return c.step == over
			}
		}
		if s.stop != nil {
			return false
		}
	}
	return false
}

func (s *shim) initialized() bool {
	for _, c := range s.containers {
		if c.kind == initContainer && (c.step != over || c.code() != 0) || c.kind == sidecarContainer && !c.begun {
			return false
		}
	}
	return true
}

// due starts a container whose time has come.
func (s *shim) due(c *container, now time.Time) {
	if c.step == idle && !now.Before(c.nextStart) && s.stop == nil {
		s.start(c, now)
	}
}

// stopSidecars ends those that served the others, now that the others have ended.
func (s *shim) stopSidecars(now time.Time) bool {
	s.end(stop{killAt: now.Add(seconds(grace(s.pod, nil)))})
	return s.stopped(now)
}

// stopped ends what runs, sidecars last and in reverse, and says whether nothing is left.
func (s *shim) stopped(now time.Time) bool {
	running, sidecars := []*container{}, []*container{}
	for _, c := range s.containers {
		switch {
		case c.step != active && c.step != ending:
		case c.kind == sidecarContainer:
			sidecars = append([]*container{c}, sidecars...)
		default:
			running = append(running, c)
		}
	}
	over := !now.Before(s.stop.killAt)
	targets := running
	if len(running) == 0 && len(sidecars) > 0 {
		targets = sidecars[:1]
	}
	if over {
		targets = append(running, sidecars...)
	}
	for _, c := range targets {
		if c.step == active {
			s.terminate(c, now, over)
		}
	}
	return len(running)+len(sidecars) == 0
}

func (s *shim) of(k kind) []*container {
	var out []*container
	for _, c := range s.containers {
		if c.kind == k {
			out = append(out, c)
		}
	}
	return out
}
