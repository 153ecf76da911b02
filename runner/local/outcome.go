package local

import (
	"bytes"
	"encoding/json"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

// publish puts the status where the daemon sees it, when it has changed.
func (s *shim) publish() {
	if s.stop != nil && s.stop.vanished {
		return
	}
	s.fill()
	text, err := json.Marshal(s.status)
	if err != nil || bytes.Equal(text, s.published) {
		return
	}
	if write(statusFile, s.status, false) == nil {
		s.published = text
	}
	notifyDaemon()
}

// fill brings statuses and conditions up to date.
func (s *shim) fill() {
	s.status.InitContainerStatuses, s.status.ContainerStatuses = nil, nil
	ready := true
	for _, c := range s.containers {
		running := c.step == active
		c.status.Started = &running
		c.status.Ready = running || c.kind == initContainer && c.step == over && c.code() == 0
		if c.kind == mainContainer {
			ready = ready && running
			s.status.ContainerStatuses = append(s.status.ContainerStatuses, c.status)
		} else {
			s.status.InitContainerStatuses = append(s.status.InitContainerStatuses, c.status)
		}
	}
	why := ""
	if !ready {
		why = "ContainersNotReady"
	}
	condition(&s.status, corev1.PodInitialized, s.initialized(), "", "")
	condition(&s.status, corev1.ContainersReady, ready, why, "")
	condition(&s.status, corev1.PodReady, ready, why, "")
}

// finish makes sure that nothing of the pod is left, writes the outcome, and
// only then lets go of the pod.
func (s *shim) finish() error {
	crash.At(crash.PodEnd, crash.Before)
	// A killed process may take its time to die, but nothing else may start before it has.
	for !killMarked(markPod+"="+string(s.pod.UID), time.Second) || !killChildren() {
		s.reap(time.Now())
	}
	crash.At(crash.PodEnd, crash.Half)
	_ = discardMemory(s.pod.UID)
	if s.stop.vanished {
		return nil
	}
	s.fill()
	s.status.Phase, s.status.Reason, s.status.Message = s.outcome(), s.stop.reason, s.stop.message
	if s.stop.disruption {
		condition(&s.status, corev1.DisruptionTarget, true, "TerminationByKubelet", s.stop.message)
	}
	for {
		err := s.saveLogs()
		if err == nil {
			err = writeDurable(outcomeFile, s.status)
		}
		if err == nil {
			break
		}
		if info, statErr := os.Stat(s.dir); statErr != nil || !os.SameFile(info, s.identity) {
			return err
		}
		time.Sleep(shimLook) // a full disk: log and outcome wait here until there is room
	}
	crash.At(crash.PodEnd, crash.After)
	notifyDaemon()
	return nil
}

// saveLogs writes the output that found no room before; an error says that
// there still is none. Other troubles with a log hold no outcome up.
func (s *shim) saveLogs() error {
	for _, c := range s.containers {
		if err := c.log.Close(); scarce(err) {
			return err
		}
	}
	return nil
}

// outcome is Succeeded when all did what they had to.
func (s *shim) outcome() corev1.PodPhase {
	if s.stop.failed {
		return corev1.PodFailed
	}
	for _, c := range s.containers {
		if c.kind != sidecarContainer && (c.step != over || c.code() != 0) {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}
