package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are the ways to a file tree of one's own, the best first: root
// takes a mount namespace; everybody else needs a user namespace around it, in
// which they stay who they are.
func namespaces() []*unix.SysProcAttr {
	user := own()
	user.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	user.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	user.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	user.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	if os.Geteuid() != 0 {
		return []*unix.SysProcAttr{user}
	}
	root := own()
	root.Cloneflags = unix.CLONE_NEWNS
	return []*unix.SysProcAttr{root, user}
}

// maxMirror bounds the directories that are rebuilt entry by entry.
const maxMirror = 2000

// becomeContainer mounts the volumes and becomes the command. It returns when
// it cannot: with a *stageFailure when the command is to blame.
func becomeContainer(spec stageSpec, environ []string) error {
	// Capabilities and the parent's death belong to a thread; exec keeps the calling one's.
	runtime.LockOSThread()
	t := &tree{scratch: spec.Scratch, mirrored: map[string]bool{}}
	if err := t.build(spec.Mounts); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("die with the shim: %w", err)
	}
	if os.Getppid() != spec.Shim {
		return errors.New("the shim is gone")
	}
	if err := os.Chdir(spec.Dir); err != nil {
		return &stageFailure{Code: 128, Message: fmt.Sprintf("working directory %s: %v", spec.Dir, plain(err))}
	}
	path, err := lookPath(spec.Argv[0], spec.Dir, environ)
	if err != nil {
		return &stageFailure{Code: shellCode(err), Message: err.Error()}
	}
	err = os.NewSyscallError("exec "+path, unix.Exec(path, spec.Argv, environ))
	return &stageFailure{Code: 128, Message: err.Error()}
}

// tree is the file tree that a container sees: the machine's own, with volumes
// in it. Nothing is made outside the scratch directory and the volumes.
type tree struct {
	scratch  string
	root     string // where the new root is built; "" when the old one will do
	mirrored map[string]bool
	mounted  []string
}

func (t *tree) build(mounts []mount) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	type planned struct {
		mount
		base, rest string
	}
	plan := make([]planned, 0, len(mounts))
	for _, m := range mounts {
		base, rest, err := resolve(m.Target)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Target, err)
		}
		plan = append(plan, planned{m, base, rest})
	}
	slices.SortStableFunc(plan, func(a, b planned) int {
		return cmp.Compare(len(filepath.Join(a.base, a.rest)), len(filepath.Join(b.base, b.rest)))
	})
	for _, p := range plan {
		if p.base == "/" && t.root == "" {
			if err := t.newRoot(); err != nil {
				return err
			}
		}
	}
	for _, p := range plan {
		if err := t.bind(p.mount, p.base, p.rest); err != nil {
			return fmt.Errorf("mount %s: %w", p.Target, err)
		}
	}
	for i, p := range plan {
		if p.ReadOnly {
			if err := readOnly(t.mounted[i]); err != nil {
				return fmt.Errorf("mount %s read-only: %w", p.Target, err)
			}
		}
	}
	return t.enter()
}

// resolve parts a path into what exists of it, free of symbolic links, and the rest.
func resolve(path string) (base, rest string, err error) {
	for p := path; ; p = filepath.Dir(p) {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			return real, rest, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return "", "", plain(err)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// bind puts one volume at its place, which is made when it is not there.
func (t *tree) bind(m mount, base, rest string) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return plain(err)
	}
	at := filepath.Join(t.root, base, rest)
	if !exists(at) && !t.inVolume(at) && !t.mirrored[base] {
		if err := t.mirror(base); err != nil {
			return err
		}
	}
	if err := mountPoint(at, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(m.Source, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	t.mounted = append(t.mounted, at)
	return nil
}

// inVolume says whether a path lies in a volume that is mounted already.
func (t *tree) inVolume(path string) bool {
	return slices.ContainsFunc(t.mounted, func(m string) bool { return strings.HasPrefix(path, m+"/") })
}

func mountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if exists(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// newRoot builds a root directory in which new entries can be made.
func (t *tree) newRoot() error {
	dir, err := t.rebuild("/")
	if err != nil {
		return fmt.Errorf("new root: %w", err)
	}
	t.root = dir
	t.mirrored["/"] = true
	return nil
}

// mirror replaces a directory by one with the same entries, in which a mount
// point can be made without making it on the machine. What a program creates
// directly in it stays with the pod, as in a container.
func (t *tree) mirror(dir string) error {
	copied, err := t.rebuild(filepath.Join(t.root, dir))
	if err != nil {
		return fmt.Errorf("make room in %s: %w", dir, err)
	}
	if err := unix.Mount(copied, filepath.Join(t.root, dir), "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("make room in %s: %w", dir, err)
	}
	t.mirrored[dir] = true
	return nil
}

// rebuild makes a mount in the scratch directory that shows every entry of from.
func (t *tree) rebuild(from string) (string, error) {
	info, err := os.Stat(from)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	if len(entries) > maxMirror {
		return "", fmt.Errorf("%d entries are too many", len(entries))
	}
	to, err := os.MkdirTemp(t.scratch, "tree-*")
	if err != nil {
		return "", err
	}
	if err := unix.Mount(to, to, "", unix.MS_BIND, ""); err != nil {
		return "", err
	}
	// Unbindable, or binding a parent of it would bind it into itself.
	if err := unix.Mount("", to, "", unix.MS_UNBINDABLE, ""); err != nil {
		return "", err
	}
	for _, e := range entries {
		if err := copyEntry(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), e); err != nil {
			return "", err
		}
	}
	return to, os.Chmod(to, info.Mode()&(fs.ModePerm|fs.ModeSticky)|0o700)
}

func copyEntry(from, to string, e fs.DirEntry) error {
	if e.Type()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	}
	if err := mountPoint(to, e.IsDir()); err != nil {
		return err
	}
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) { // gone meanwhile, or not ours to see
		return nil
	}
	return err
}

// readOnly remounts with the flags that the mount has: a user namespace may not drop them.
func readOnly(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	keep := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if st.Flags&unix.ST_RELATIME != 0 {
		keep |= unix.MS_RELATIME
	}
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, "")
}

// enter makes the new root the root, and lets go of the old one.
func (t *tree) enter() error {
	if t.root == "" {
		return nil
	}
	if err := os.Chdir(t.root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return os.Chdir("/")
}
