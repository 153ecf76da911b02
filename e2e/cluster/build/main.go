// Command build makes the control plane's program that tests use, unless it is
// there, and says how far it is. Tests would do so too, but in silence.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/trainyard/trainyard/e2e/cluster"
)

func main() {
	if _, err := cluster.Build(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
