// Package manifest reads YAML files of a watched repository that nobody has
// checked before, and gives every job format one way to decode, validate and
// complain with file, line and column. It never reads a file itself, and never
// runs or renders anything.
package manifest
