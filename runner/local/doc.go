// Package local runs pods as processes on this machine. Every pod is held by a
// shim: a process of its own (the same binary, started again) that outlives
// the daemon and has the pod's outcome on disk before it ends, so that a daemon
// that starts again finds every pod as it is. It never starts a pod twice, never
// pulls or runs an image, and never hands the daemon's own environment to a pod.
//
// Everything lies in files below one directory, each published by rename:
//
//	runs/RUN/run.json              a run that Prepare has seen
//	runs/RUN/attempt-N.json        the ports of its tasks
//	pods/NAMESPACE/NAME/           one pod; the directory's name is its lock
//	    pod.json, objects.json     what Create was given, and the config maps it names
//	    pod.copy.json              the first of these once more: without it a pod is nobody's
//	    admitted.json              its place on the machine: GPUs, settings of the shim
//	    lock                       held by the shim as long as it lives
//	    shim.json                  which process the shim is; written before anything starts
//	    status.json                how the pod is (may be lost with the machine)
//	    delete.json, released      asked to end; the finalizer is gone
//	    outcome.json               how it ended: there only when none of its processes is left
//	    logs/, work/, volumes/     of the containers
//	notify.sock                    where shims tell the daemon of changes
//
// Whoever holds a pod's lock may write shim.json and outcome.json, nobody else.
// A pod that has a shim.json is never started again: when its shim is gone
// without an outcome, what is left of the pod is killed and the outcome is
// that it was lost.
//
// When somebody deletes a pod's directory, or all of them, what runs of it is
// ended, and only then can anything take its place.
//
// Room on the machine is given to the oldest first, to the pods of a gang all at
// once, and before all others to those of runs that have begun.
//
// A process of a pod that left its session and cleared its environment is ended
// with its pod by the shim; when the shim itself was killed, nobody can find it.
//
// Of a pod these are not used: images, security contexts, probes, post-start
// hooks, and limits beyond what admission keeps free (no control groups).
package local
