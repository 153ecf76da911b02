package render

import (
	"github.com/trainyard/trainyard/render/framework"
	"github.com/trainyard/trainyard/render/mxjob"
	"github.com/trainyard/trainyard/render/tfjob"
	"github.com/trainyard/trainyard/render/trainingjob"
)

// known are the formats of job files, the recommended one first.
func known() formats {
	return formats{trainingjob.Format(), framework.Format(), tfjob.Format(), mxjob.Format()}
}
