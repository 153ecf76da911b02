package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// logFile is a container's log: one file up to a size, and the one before it
// as NAME.log.1. Nothing ever waits for it: output that cannot be written (a
// full disk) is dropped, and the program goes on.
type logFile struct {
	path  string
	limit int64
	mu    sync.Mutex
	file  *os.File
	size  int64
}

func logPath(dir, container string) string { return filepath.Join(dir, logsDir, container+".log") }

// previous is where the older part of a log lies.
func previous(path string) string { return path + ".1" }

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		if l.file == nil && l.open() != nil {
			break
		}
		n := min(int64(len(rest)), l.limit-l.size)
		if n <= 0 {
			if os.Rename(l.path, previous(l.path)) != nil {
				break
			}
			l.file.Close()
			l.file = nil
			continue
		}
		wrote, err := l.file.Write(rest[:n])
		l.size += int64(wrote)
		rest = rest[wrote:]
		if err != nil {
			break
		}
	}
	return len(p), nil
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	return nil
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}

// tailOf reads the last n bytes of a log, over both of its files.
func tailOf(path string, n int64) []byte {
	var text []byte
	for _, p := range []string{path, previous(path)} {
		if n <= 0 {
			break
		}
		part := lastBytes(p, n)
		text = append(part, text...)
		n -= int64(len(part))
	}
	return text
}

func lastBytes(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(0, info.Size()-n)
	text := make([]byte, info.Size()-from)
	read, _ := io.ReadFull(io.NewSectionReader(f, from, info.Size()-from), text)
	return text[:read]
}
