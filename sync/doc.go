// Package gitsync reads a remote Git repository into immutable snapshots and
// publishes commits to it: over files, HTTP, SSH and git://, through a bare
// mirror kept between runs. It never checks anything out, never runs a
// repository's code, and knows nothing of jobs.
//
// A Remote is where the repository lies and how to be let in. A Mirror is the
// local copy: Fetch brings a branch's newest commit into it, Publish adds a
// commit to a branch by compare-and-swap. A Snapshot is a commit's tree as a
// read-only file system; a View of it remembers what was read, so that the
// same work need not be done again for a snapshot in which that is unchanged.
//
// It is built on go-git's object and protocol formats (packp, packfile,
// idxfile). The connections and the object store are its own: go-git's SSH and
// git:// sessions cannot be stopped while they dial or shake hands, and its
// storage must not be read while a fetch adds a pack to it.
package gitsync
