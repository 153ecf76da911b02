package trainer

import (
	"math"
	"math/rand/v2"
)

// The shape of the problem: points around one centre a class.
const (
	features = 64
	classes  = 10
)

// weights of a softmax regression: classes rows of features and a bias.
type weights [classes * (features + 1)]float64

// data is a worker's share of the samples.
type data struct {
	x [][features]float64
	y []int
}

// makeData draws samples. The centres are the same for every seed, so that
// all workers learn the same problem from different samples.
func makeData(n int, seed uint64) data {
	centres := rand.New(rand.NewPCG(1, 1))
	var centre [classes][features]float64
	for c := range centre {
		for f := range centre[c] {
			centre[c][f] = centres.NormFloat64() * 0.35
		}
	}
	draw := rand.New(rand.NewPCG(2, seed))
	d := data{x: make([][features]float64, n), y: make([]int, n)}
	for i := range d.x {
		d.y[i] = draw.IntN(classes)
		for f := range d.x[i] {
			d.x[i][f] = centre[d.y[i]][f] + draw.NormFloat64()
		}
	}
	return d
}

// gradient is the mean gradient of the cross entropy over the data, with the
// mean loss and the share of samples that are classified right.
func (d *data) gradient(w *weights) (g weights, loss, accuracy float64) {
	var p [classes]float64
	for i := range d.x {
		x := &d.x[i]
		best := 0
		for c := range p {
			row := w[c*(features+1):]
			z := row[features]
			for f := range x {
				z += row[f] * x[f]
			}
			p[c] = z
			if z > p[best] {
				best = c
			}
		}
		if best == d.y[i] {
			accuracy++
		}
		loss += softmax(&p, d.y[i])
		for c := range p {
			e := p[c]
			if c == d.y[i] {
				e--
			}
			row := g[c*(features+1):]
			for f := range x {
				row[f] += e * x[f]
			}
			row[features] += e
		}
	}
	n := float64(len(d.x))
	for i := range g {
		g[i] /= n
	}
	return g, loss / n, accuracy / n
}

// softmax turns scores into probabilities and returns the cross entropy of label.
func softmax(p *[classes]float64, label int) float64 {
	top := p[0]
	for _, z := range p {
		top = max(top, z)
	}
	sum := 0.0
	for c := range p {
		p[c] = math.Exp(p[c] - top)
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	return -math.Log(max(p[label], 1e-300))
}
