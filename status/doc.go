// Package status turns records into the files that people and tools read on the
// status branch, and reads records back from them. It works on values and bytes
// alone: it asks no clock, knows no Git, and the same records give the same bytes.
package status
