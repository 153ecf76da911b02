//go:build !race

package gitsync

const raced = false
