package simulation

// choices are where all chance of a history comes from: a seed, or what was
// drawn in another history, by steps, so that some of them can be left out. The
// smallest draw is always the dullest.
type choices struct {
	state  uint64
	again  [][]uint16 // nil draws afresh
	drawn  []uint16
	starts []int // where each step's draws begin
	at     int   // within a step that is drawn again
}

func newChoices(seed uint64) choices { return choices{state: seed * 0x9e3779b97f4a7c15} }

// begin begins the draws of a step.
func (c *choices) begin() {
	c.starts = append(c.starts, len(c.drawn))
	c.at = 0
}

// below draws a number from 0 to n-1. n is at most 65536.
func (c *choices) below(n int) int {
	if n <= 1 {
		return 0
	}
	var x int
	if c.again == nil {
		x = int(c.next() % uint64(n))
	} else if step := len(c.starts) - 1; step < len(c.again) && c.at < len(c.again[step]) {
		x = int(c.again[step][c.at]) % n
		c.at++
	}
	c.drawn = append(c.drawn, uint16(x))
	return x
}

// next is splitmix64.
func (c *choices) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	z := c.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// chance is true in so many of a hundred cases.
func (c *choices) chance(percent int) bool { return c.below(100) >= 100-percent }

// oneOf draws one of several values, the first of which is the dullest.
func oneOf[T any](c *choices, values ...T) T { return values[c.below(len(values))] }

// steps are all draws so far, by step.
func (c *choices) steps() [][]uint16 {
	out := make([][]uint16, len(c.starts))
	for i, from := range c.starts {
		to := len(c.drawn)
		if i+1 < len(c.starts) {
			to = c.starts[i+1]
		}
		out[i] = append([]uint16{}, c.drawn[from:to]...)
	}
	return out
}
