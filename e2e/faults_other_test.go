//go:build !linux

package e2e

// machineFaults need Linux.
func machineFaults() []outside { return nil }
