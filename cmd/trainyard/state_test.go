package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"https://ada:s3cret@example.com/x":    "https://example.com/x",
		"https://s3cret@example.com/x":        "https://example.com/x",
		"https://ada:s3cret@example.com/x%zz": "a URL that cannot be read",
		"git@example.com:team/jobs":           "git@example.com:team/jobs",
		"/srv/git/jobs.git":                   "/srv/git/jobs.git",
	} {
		assert.Equal(t, want, redacted(in), in)
	}
}
