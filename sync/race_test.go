//go:build race

package gitsync

// The race detector multiplies memory: its figures say nothing.
const raced = true
