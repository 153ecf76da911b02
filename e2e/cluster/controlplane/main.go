// Command controlplane is, by the name it is called with, one part of a real
// control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// or kwok, which simulates nodes. One program is linked faster than five, and
// takes less room. It is started by tests, and ends when its standard input
// does: nothing outlives the tests, even when they are killed.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	_ "time/tzdata" // for the scheduler's and the controllers' time zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kwok":
		if err := simulate(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "kwok:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "controlplane: called as %q; it is etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kwok by its name\n", name)
		os.Exit(2)
	}
}

func run(c *cobra.Command) { os.Exit(cli.Run(c)) }

// simulate runs kwok, and beside it the part of a kubelet that serves logs.
func simulate(ctx context.Context, args []string) error {
	logs, err := logsFrom(args)
	if err != nil {
		return err
	}
	// The imports above have put a --version on pflag's own set that is no
	// boolean, as cobra, which adds that set to every root command, expects.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = log.InitFlags(ctx, flags)
	if ctx, err = config.InitFlags(ctx, flags); err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	ended := make(chan error, 2)
	go func() { ended <- logs.serve() }()
	go func() { ended <- command.ExecuteContext(ctx) }()
	return <-ended
}
