// Command build makes the programs of a node that tests use, unless they are
// there, and says how far it is. Where there can be no node it says why.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/trainyard/trainyard/e2e/cluster/node"
)

func main() {
	if err := node.Needs(); err != nil {
		fmt.Fprintf(os.Stderr, "node: tests of real nodes will be skipped: %v\n", err)
		return
	}
	if _, err := node.Build(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
