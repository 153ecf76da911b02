package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stageSpec is what the second stage of a container's start needs: the shim
// starts this program again within new namespaces, where it mounts the volumes
// and then becomes the container's command.
type stageSpec struct {
	Mounts  []mount  `json:"mounts"`
	Argv    []string `json:"argv"`
	Dir     string   `json:"dir"`
	Scratch string   `json:"scratch"` // an empty directory of its own
	Shim    int      `json:"shim"`
}

// stageFailure is what the second stage says on its pipe when the command was not started.
type stageFailure struct {
	Mount   bool   `json:"mount"` // the command would have been startable without the mounts
	Code    int32  `json:"code"`  // that the container ends with
	Message string `json:"message"`
}

func (f *stageFailure) Error() string { return f.Message }

// startFailure is a command that cannot be started, with the exit code that a shell would give.
type startFailure struct {
	code int32
	err  error
}

func (f *startFailure) Error() string { return f.err.Error() }
func (f *startFailure) Unwrap() error { return f.err }

// launch starts a container's command with its volumes mounted where the
// machine allows it. The note says why they are not.
func (s *shim) launch(c *container, spec stageSpec, environ []string, out *os.File) (pid int, note string, err error) {
	if len(spec.Mounts) > 0 {
		switch ways := namespaces(); {
		case s.order.NoMounts:
			note = "private mounts are switched off"
		case len(ways) == 0:
			note = "this system has no private mounts"
		default:
			for _, way := range ways {
				var failure *stageFailure
				pid, err := s.stage(c, way, spec, environ, out)
				switch {
				case err == nil:
					return pid, "", nil
				case errors.As(err, &failure) && !failure.Mount:
					return 0, "", &startFailure{code: failure.Code, err: failure}
				case errors.Is(err, errScarce):
					return 0, "", err // later it will be with its volumes
				}
				note = err.Error()
			}
		}
		note = fmt.Sprintf("container %q: volumes are not mounted: %s; where they really lie is in %s…", c.spec.Name, note, volumeVariable)
	}
	pid, err = direct(spec, environ, out)
	return pid, note, err
}

// direct starts a command without mounts.
func direct(spec stageSpec, environ []string, out *os.File) (int, error) {
	if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
		return 0, &startFailure{code: 128, err: fmt.Errorf("working directory %s: not a directory on this machine", spec.Dir)}
	}
	path, err := lookPath(spec.Argv[0], spec.Dir, environ)
	if err != nil {
		return 0, &startFailure{code: shellCode(err), err: err}
	}
	return spawn(path, spec.Argv, spec.Dir, environ, own(), out)
}

func shellCode(err error) int32 {
	if errors.Is(err, os.ErrPermission) {
		return 126
	}
	return 127
}

// spawn starts a process that reads nothing and writes to out.
func spawn(path string, argv []string, dir string, environ []string, attr *unix.SysProcAttr, out *os.File, more ...*os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Dir: dir, Env: environ, Files: append([]*os.File{null, out, out}, more...), Sys: attr})
	if err != nil {
		return 0, &startFailure{code: 128, err: err}
	}
	pid := p.Pid
	return pid, p.Release() // reaped by the shim's own loop
}

// stage starts the second stage and waits until it has become the command, or says why not.
func (s *shim) stage(c *container, attr *unix.SysProcAttr, spec stageSpec, environ []string, out *os.File) (int, error) {
	file := filepath.Join(s.dir, execDir, c.spec.Name+".json")
	spec.Scratch, spec.Shim = filepath.Join(s.dir, execDir, c.spec.Name), os.Getpid()
	err := os.MkdirAll(spec.Scratch, 0o700)
	if err == nil {
		err = write(file, spec, false)
	}
	if scarce(err) { // the kernel says the same of namespaces that it does not allow
		err = fmt.Errorf("%w: %w", errScarce, err)
	}
	if err != nil {
		return 0, err
	}
	self, err := selfExecutable()
	if err != nil {
		return 0, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	argv := append([]string{"trainyard"}, append(append([]string{}, s.order.ShimArgs...), file)...)
	pid, err := spawn(self, argv, "/", environ, attr, out, to)
	to.Close()
	if err != nil {
		return 0, fmt.Errorf("new namespaces: %w", err)
	}
	text, err := io.ReadAll(from) // ends when the pipe is closed by exec
	if err != nil || len(text) == 0 {
		return pid, err
	}
	var ws unix.WaitStatus
	_, _ = unix.Wait4(pid, &ws, 0, nil)
	failure := &stageFailure{Mount: true}
	if json.Unmarshal(text, failure) != nil {
		failure.Message = string(text)
	}
	return 0, failure
}

// runStage is the second stage itself. It returns only when it failed.
func runStage(file string) int {
	pipe := os.NewFile(3, "pipe")
	if pipe == nil {
		return 2
	}
	unix.CloseOnExec(3)
	var spec stageSpec
	err := read(file, &spec)
	if err == nil {
		err = becomeContainer(spec, os.Environ())
	}
	failure := &stageFailure{}
	if !errors.As(err, &failure) {
		failure = &stageFailure{Mount: true, Message: err.Error()}
	}
	w := bufio.NewWriter(pipe)
	_ = json.NewEncoder(w).Encode(failure)
	_ = w.Flush()
	return 1
}
