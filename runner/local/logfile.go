package local

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// unsaved is how much output is kept in memory, its end, while it cannot be
// written: as much as is read for a record.
const unsaved = 64 << 10

// logFile is a container's log: one file up to a size, and the one before it
// as NAME.log.1. The program never waits for it: of output that cannot be
// written (a full disk) the end is kept until it can, and the rest is dropped.
type logFile struct {
	path    string
	limit   int64
	mu      sync.Mutex
	file    *os.File
	size    int64
	waiting []byte // output that could not be written yet
}

func logPath(dir, container string) string { return filepath.Join(dir, logsDir, container+".log") }

// previous is where the older part of a log lies.
func previous(path string) string { return path + ".1" }

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := p
	if len(l.waiting) > 0 {
		rest = append(l.waiting, p...)
	}
	rest, _ = l.save(rest)
	l.waiting = bytes.Clone(rest[max(0, len(rest)-unsaved):])
	return len(p), nil
}

// save writes what it can, and returns what is left.
func (l *logFile) save(rest []byte) ([]byte, error) {
	for len(rest) > 0 {
		if l.file == nil {
			if err := l.open(); err != nil {
				return rest, err
			}
		}
		n := min(int64(len(rest)), l.limit-l.size)
		if n <= 0 {
			if err := os.Rename(l.path, previous(l.path)); err != nil {
				return rest, err
			}
			l.file.Close()
			l.file = nil
			continue
		}
		wrote, err := l.file.Write(rest[:n])
		l.size += int64(wrote)
		rest = rest[wrote:]
		if err != nil {
			return rest, err
		}
	}
	return nil, nil
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

// Close closes the file until more is written. An error says that output is
// still waiting; a later Close tries again.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	l.waiting, err = l.save(l.waiting)
	if l.file != nil {
		err = errors.Join(err, l.file.Sync(), l.file.Close())
		l.file = nil
	}
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
