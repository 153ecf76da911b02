package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/mattn/go-isatty"
)

// streams are where a command reads and writes.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal says whether Err is one: a person reads along.
	Terminal bool
}

// system is what commands know of the machine and the user: everything that
// main would otherwise read from globals, so that tests run commands in process.
type system struct {
	streams
	Dir string // the working directory
	// Env looks a variable up.
	Env func(name string) (value string, ok bool)
}

func hostSystem() system {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // removed under us; whoever needs it says so
	}
	return system{
		streams: streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Terminal: isatty.IsTerminal(os.Stderr.Fd())},
		Dir:     dir,
		Env:     os.LookupEnv,
	}
}

func (s system) env(name string) string {
	v, _ := s.Env(name)
	return v
}

// path is a path that the user gave, from the working directory.
func (s system) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.Dir, name)
}

// home is the user's home directory, or "".
func (s system) home() string { return s.env("HOME") }
