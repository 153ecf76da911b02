package changes

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	repo "github.com/trainyard/trainyard/repo-layout"
)

func key(name string) repo.Key { return repo.Key{Namespace: "nlp", Name: name} }

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		feed.Tell(key("before"))
		feed.Tell(key("before"))
		ctx, cancel := context.WithCancel(t.Context())
		heard := [2][]string{}
		watch := func(i int) {
			go func() {
				assert.ErrorIs(t, feed.Watch(ctx, func(k repo.Key) { heard[i] = append(heard[i], k.Name) }), context.Canceled)
			}()
			synctest.Wait()
		}
		watch(0)
		require.Equal(t, []string{"before"}, heard[0], "what was told while nobody watched is not lost")
		watch(1)
		require.Empty(t, heard[1], "and is told to the first who does alone")
		feed.Tell(key("a"))
		synctest.Wait()
		feed.Tell(key("b"))
		synctest.Wait()
		require.Equal(t, []string{"before", "a", "b"}, heard[0])
		require.Equal(t, []string{"a", "b"}, heard[1], "every watch hears everything")
		cancel()
		synctest.Wait()

		feed.Tell(key("between"))
		ctx, cancel = context.WithCancel(t.Context())
		watch(0)
		require.Equal(t, []string{"before", "a", "b", "between"}, heard[0])
		cancel()
		synctest.Wait()
	})
}
