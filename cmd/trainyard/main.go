// Command trainyard runs training jobs from a Git repository. Package main wires
// the parts and speaks with the user; it decides nothing about jobs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/trainyard/trainyard/repo-layout/crash"
)

func main() {
	crash.Arm(kind(os.Args))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := execute(ctx, hostSystem(), connected(), os.Args[1:])
	stop()
	os.Exit(code)
}

// kind is what this process is to tests that kill it.
func kind(args []string) crash.Kind {
	if len(args) > 1 && args[1] == "shim" {
		return crash.Shim
	}
	return crash.Daemon
}
