// Package examples holds watched repositories to copy from. The demo pushes some
// of their jobs, and the tests run all of them.
package examples

import "embed"

// FS holds the jobs that the demo pushes, by example.
//
//go:embed hello parameter-server retries
var FS embed.FS
