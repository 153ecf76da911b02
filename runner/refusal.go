package runner

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isFinal says whether a backend's error means that it will never take this
// object. Anything that may pass, or that the job cannot help, does not: such
// a pod is asked for again, and the record says what was answered.
func isFinal(err error) bool {
	text, code := refusal(err), statusCode(err)
	switch {
	case strings.Contains(text, "the object provided is unrecognized"):
		return false // the server's versions are being changed
	case deniedByWebhook.MatchString(text):
		return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
	case strings.Contains(text, "etcdserver: request is too large"):
		return true
	case apierrors.IsForbidden(err):
		return !mayPass(err, text)
	}
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// mayPass says whether a Forbidden is about something else than the object: the
// room that is left, the namespace, or what the daemon itself may do.
func mayPass(err error, text string) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || byAuthorizer.MatchString(text) {
		return true
	}
	for _, s := range []string{
		"exceeded quota", "status unknown for quota", "insufficient quota",
		"because it is being terminated", "error looking up service account",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

var (
	// deniedByWebhook is how the API server begins a denial; when a webhook
	// cannot be asked it says so in other words.
	deniedByWebhook = regexp.MustCompile(`admission webhook "[^"]*" denied the request`)
	// byAuthorizer is what the API server says of somebody who may not do this at all.
	byAuthorizer = regexp.MustCompile(`User "[^"]*" cannot [a-z]+ resource "`)
)

// isNoRehearsal says that a rehearsal itself is not possible, which tells
// nothing of the pod: a webhook has effects besides its answer.
func isNoRehearsal(err error) bool {
	return err != nil && strings.Contains(refusal(err), "does not support dry run")
}

// refusal is what the backend said, in its own words.
func refusal(err error) string {
	if s := status(err); s != nil && s.Message != "" {
		return s.Message
	}
	return err.Error()
}

func statusCode(err error) int {
	if s := status(err); s != nil {
		return int(s.Code)
	}
	return 0
}

func status(err error) *metav1.Status {
	var of apierrors.APIStatus
	if !errors.As(err, &of) {
		return nil
	}
	s := of.Status()
	return &s
}
