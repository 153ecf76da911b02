package render

import (
	"github.com/trainyard/trainyard/render/trainingjob"
)

// known are the formats of job files, the recommended one first.
func known() formats {
	return formats{trainingjob.Format()}
}
