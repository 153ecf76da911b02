package gitsync

// Hash is the hash of all that lies at a path, in this snapshot and in every
// other: of a regular file its blob, of a directory its tree. It is "" when
// neither is there, and reads no file.
func (s *Snapshot) Hash(name string) string {
	e, err := s.find(name)
	if err != nil || !(e.isFile() || e.isDir()) {
		return ""
	}
	return e.hash.String()
}
