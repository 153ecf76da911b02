package render

import (
	"github.com/trainyard/trainyard/render/batchjob"
	"github.com/trainyard/trainyard/render/framework"
	"github.com/trainyard/trainyard/render/jobset"
	"github.com/trainyard/trainyard/render/kubeflow/jax"
	"github.com/trainyard/trainyard/render/kubeflow/mpi"
	"github.com/trainyard/trainyard/render/kubeflow/mxnet"
	"github.com/trainyard/trainyard/render/kubeflow/paddle"
	"github.com/trainyard/trainyard/render/kubeflow/pytorch"
	"github.com/trainyard/trainyard/render/kubeflow/tensorflow"
	"github.com/trainyard/trainyard/render/kubeflow/xgboost"
	"github.com/trainyard/trainyard/render/mxjob"
	"github.com/trainyard/trainyard/render/tfjob"
	"github.com/trainyard/trainyard/render/trainingjob"
	"github.com/trainyard/trainyard/render/trainjob"
)

// known are the formats of job files, the recommended one first.
func known() formats {
	return formats{
		trainingjob.Format(),
		framework.Format(),
		tfjob.Format(),
		mxjob.Format(),
		tensorflow.Format(),
		pytorch.Format(),
		mxnet.Format(),
		xgboost.Format(),
		paddle.Format(),
		jax.Format(),
		mpi.Format(),
		batchjob.Format(),
		jobset.Format(),
		trainjob.Format(),
	}
}
