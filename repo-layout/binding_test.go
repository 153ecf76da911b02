package repo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRepositoryID(t *testing.T) {
	for place, name := range map[string]string{
		"git.example.com/ml/jobs":                         "jobs-",
		"git.example.com/ml/Jobs_2.git":                   "jobs-2-",
		"host/srv/git/jobs.git\x00trainyard/status":       "jobs-",
		"git.example.com/~ada/" + strings.Repeat("x", 80): strings.Repeat("x", 52) + "-",
		"git.example.com/ä/ö":                             "repository-",
		"":                                                "repository-",
	} {
		id := RepositoryID(place)
		assert.True(t, strings.HasPrefix(id, name) && len(id) == len(name)+10, "%q: %s", place, id)
		assert.True(t, IsRepositoryID(id), id)
		assert.Equal(t, id, RepositoryID(place))
	}
	assert.NotEqual(t, RepositoryID("a.example/jobs"), RepositoryID("b.example/jobs"))
	for _, bad := range []string{"", "-a", "a-", "A", "a b", "a/b", "a,b", strings.Repeat("a", 64)} {
		assert.False(t, IsRepositoryID(bad), bad)
	}
	assert.Equal(t, "prod/environment.yaml", Layout{}.Binding("prod"))
	assert.Equal(t, "status/prod/environment.yaml", Layout{Root: StatusDir}.Binding("prod"))
}
