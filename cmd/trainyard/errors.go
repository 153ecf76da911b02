package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes.
const (
	exitFine     = 0
	exitProblems = 1
	exitUsage    = 2
)

// usageError is wrong usage: of flags, arguments or variables.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// hinted is an error with a line that says what to do about it.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

func hint(err error, format string, args ...any) error {
	return &hinted{err: err, hint: fmt.Sprintf(format, args...)}
}

// exitCode ends the program without another word.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// errProblems is for commands that have said themselves what is wrong.
const errProblems = exitCode(exitProblems)

// report prints an error and its hints, and returns the exit code for it.
func report(w io.Writer, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(w, "trainyard: %s\n", strings.TrimSpace(err.Error()))
	for e := err; e != nil; {
		var h *hinted
		if !errors.As(e, &h) {
			break
		}
		fmt.Fprintf(w, "hint: %s\n", h.hint)
		e = h.err
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitProblems
}
