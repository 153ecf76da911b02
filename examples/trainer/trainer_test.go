package trainer

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func tfConfig(ps, kind string, index int) string {
	return fmt.Sprintf(`{"cluster":{"ps":[%q],"worker":["a:1","b:2"]},"task":{"type":%q,"index":%d}}`, ps, kind, index)
}

// environment is one of names and values in turn.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestTwoWorkersLearnTogether(t *testing.T) {
	ps := freeAddress(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var server errgroup.Group
	out := make([]bytes.Buffer, 2)
	config := Config{Steps: 40, Samples: 500, Rate: 1, Out: new(bytes.Buffer)}
	server.Go(func() error {
		c := config
		c.Env = environment("TF_CONFIG", tfConfig(ps, "ps", 0))
		return Run(ctx, "tensorflow", c)
	})
	var workers errgroup.Group
	for i := range out {
		workers.Go(func() error {
			c := config
			c.Env, c.Out = environment("TF_CONFIG", tfConfig(ps, "worker", i)), &out[i]
			return Run(ctx, "tensorflow", c)
		})
	}
	require.NoError(t, workers.Wait())
	stop()
	require.NoError(t, server.Wait())

	var first, last, accuracy float64
	for i := range out {
		lines := bytes.Split(bytes.TrimSpace(out[i].Bytes()), []byte("\n"))
		_, err := fmt.Sscanf(string(lines[1]), "step 2/40 loss=%f", &first)
		require.NoError(t, err)
		_, err = fmt.Sscanf(string(lines[len(lines)-1]), "step 40/40 loss=%f acc=%f", &last, &accuracy)
		require.NoError(t, err)
		require.Less(t, last, first/2, "the loss falls")
		require.Greater(t, accuracy, 0.9)
	}
	require.Equal(t, lastLine(&out[0]), lastLine(&out[1]), "both see the same mean")
}

func lastLine(b *bytes.Buffer) string {
	lines := bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))
	return string(lines[len(lines)-1])
}

// TestGradient compares the gradient with finite differences.
func TestGradient(t *testing.T) {
	d := makeData(50, 3)
	var w weights
	for i := range w {
		w[i] = float64(i%7) / 50
	}
	g, _, _ := d.gradient(&w)
	for _, i := range []int{0, 63, 64, 65, 400, len(w) - 1} {
		const h = 1e-6
		up, down := w, w
		up[i] += h
		down[i] -= h
		_, a, _ := d.gradient(&up)
		_, b, _ := d.gradient(&down)
		require.InDelta(t, (a-b)/(2*h), g[i], 1e-6, "weight %d", i)
	}
}

func TestConfigErrors(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"none":      {"", "TF_CONFIG is not set"},
		"no JSON":   {"{", "TF_CONFIG: unexpected end"},
		"no server": {`{"cluster":{"worker":["a:1"]}}`, "0 parameter servers"},
		"role":      {`{"cluster":{"ps":["a:1"]},"task":{"type":"evaluator"}}`, `"evaluator" is neither`},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Run(context.Background(), "tensorflow", Config{Env: environment("TF_CONFIG", c.config)}), c.want)
		})
	}
}
