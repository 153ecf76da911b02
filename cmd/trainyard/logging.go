package main

import (
	"io"
	"time"

	"github.com/rs/zerolog"
)

// newLogger writes lines for people on a terminal, JSON elsewhere.
func newLogger(w io.Writer, terminal bool, format, level string) zerolog.Logger {
	if format == "console" || format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !terminal, TimeFormat: time.TimeOnly}
	}
	parsed, err := zerolog.ParseLevel(level)
	if err != nil {
		parsed = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(parsed).With().Timestamp().Logger()
}
