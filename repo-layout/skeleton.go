package repo

import (
	"embed"
	"io/fs"
)

//go:embed all:skeleton
var skeleton embed.FS

// Skeleton is what `trainyard init` writes: a watched repository with one job.
func Skeleton() fs.FS {
	sub, err := fs.Sub(skeleton, "skeleton")
	if err != nil {
		panic(err) // the name is valid and embedded: this cannot happen
	}
	return sub
}
