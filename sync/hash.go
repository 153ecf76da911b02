package gitsync

// Hash is the hash of all that lies at a path, in this snapshot and in every
// other: of a file or link its blob, of a directory its tree, of a submodule its
// commit. It is "" when nothing is there, and reads no file.
func (s *Snapshot) Hash(name string) string {
	e, err := s.find(name)
	if err != nil {
		return ""
	}
	return e.hash.String()
}
