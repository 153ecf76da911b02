package local

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	repo "github.com/trainyard/trainyard/repo-layout"
)

const socketName = "notify.sock"

// Watch calls changed with a job's key whenever one of its pods changed, until ctx ends.
func (b *Backend) Watch(ctx context.Context, changed func(repo.Key)) error {
	return b.changes.Watch(ctx, changed)
}

// listen opens the socket on which shims say that their pod changed. Without
// it (a path too long for the system) changes are seen by the next rescan.
func (b *Backend) listen() {
	dir, err := os.Open(b.dir)
	if err != nil {
		return
	}
	defer dir.Close()
	path := filepath.Join(b.dir, socketName)
	_ = os.Remove(path)
	// Names of sockets are short, paths of state directories are not.
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), socketName)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: short, Net: "unixgram"})
	if err != nil {
		conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	}
	if err != nil {
		b.options.Logger.Warn().Err(err).Msg("no socket for shims: changes are seen within two seconds")
		return
	}
	b.socket = conn
	b.done.Go(func() {
		buf := make([]byte, 16)
		for {
			if _, _, err := conn.ReadFromUnix(buf); err != nil {
				return
			}
			b.wake()
		}
	})
}

// notifyDaemon is the shim's side: a word on the socket. Nobody may be there.
func notifyDaemon() {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: "../../../" + socketName, Net: "unixgram"})
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte{'.'})
	_ = conn.Close()
}
