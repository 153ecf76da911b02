package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"

	repo "github.com/trainyard/trainyard/repo-layout"
)

// Settings with a mistake must not move every record to another directory.
func TestBrokenSettingsMoveNothing(t *testing.T) {
	var s shared
	s.take(&repo.Definitions{Settings: repo.Settings{Shards: 16}})
	assert.Equal(t, 16, s.get().Shards)
	s.take(&repo.Definitions{Problems: []*repo.Error{{File: repo.SettingsFile, Line: 1, Message: "unknown field"}, {Message: "look here", Warning: true}}})
	assert.Equal(t, 16, s.get().Shards)
	assert.Equal(t, []string{"trainyard.yaml:1: unknown field"}, s.errors())
	s.take(&repo.Definitions{Problems: []*repo.Error{{File: repo.SettingsFile, Message: "an old name", Warning: true}}})
	assert.Equal(t, 0, s.get().Shards, "the settings were read, and ask for none")
	assert.Empty(t, s.errors())
}
