// Package edit changes one setting of a job in a job file: suspend, resume,
// stop, rerun. It works on bytes at positions that a YAML parser found, so that
// comments, indentation and line endings stay as they are, and reads the result
// again to see that nothing else changed. It never reads or writes files, and
// refuses rather than guesses.
package edit
