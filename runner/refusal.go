package runner

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isQuota says whether a Forbidden is about a quota: that may pass.
func isQuota(err error) bool {
	return strings.Contains(err.Error(), "exceeded quota")
}

// refusal is what the backend said, in its own words.
func refusal(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}
