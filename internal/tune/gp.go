package tune

import "math"

// process is a Gaussian process with a Matern 5/2 kernel and a length for each feature. It is exact;
// an observation is added in quadratic time.
type process struct {
	scales  []float64 // of each feature: the inverse of the squared length
	noise   float64   // variance of an observation over that of the process
	rows    [][]float64
	targets []float64
	factor  [][]float64 // Cholesky factor of the covariance: row i has i+1 elements
	half    []float64   // factor⁻¹ · (targets - mean), up to the change of the mean
	ones    []float64   // factor⁻¹ · 1
	weights []float64   // covariance⁻¹ · (targets - mean)
	mean    float64
	spread  float64 // variance of the process
}

func (g *process) kernel(a, b []float64) float64 {
	d := 0.0
	for i, w := range g.scales {
		x := a[i] - b[i]
		d += w * x * x
	}
	r := math.Sqrt(5 * d)
	return (1 + r + r*r/3) * math.Exp(-r)
}

// reset forgets the observations.
func (g *process) reset() {
	g.rows, g.targets, g.factor, g.half, g.ones = g.rows[:0], g.targets[:0], g.factor[:0], g.half[:0], g.ones[:0]
}

// add appends a row to the factor.
func (g *process) add(row []float64, target float64) {
	n := len(g.rows)
	var l []float64
	if cap(g.factor) > n { // of an earlier fit
		l = g.factor[: n+1 : cap(g.factor)][n]
	}
	if cap(l) < n+1 {
		l = make([]float64, n+1)
	}
	l = l[:n+1]
	for i, other := range g.rows {
		l[i] = g.kernel(row, other)
	}
	rest := 1 + g.noise
	half, one := target, 1.0
	for i, f := range g.factor[:n] {
		l[i] = (l[i] - dot(f[:i], l[:i])) / f[i]
		rest -= l[i] * l[i]
		half -= l[i] * g.half[i]
		one -= l[i] * g.ones[i]
	}
	l[n] = math.Sqrt(max(rest, 1e-10))
	g.rows, g.targets, g.factor = append(g.rows, row), append(g.targets, target), append(g.factor, l)
	g.half, g.ones = append(g.half, half/l[n]), append(g.ones, one/l[n])
}

func dot(a, b []float64) float64 {
	b = b[:len(a)]
	var x, y float64
	i := 0
	for ; i+1 < len(a); i += 2 {
		x += a[i] * b[i]
		y += a[i+1] * b[i+1]
	}
	if i < len(a) {
		x += a[i] * b[i]
	}
	return x + y
}

// solve computes the mean and the weights. It returns the logarithm of the likelihood, up to a
// constant. The mean is that of the targets: a least-squares one extrapolates to far better costs
// than any result, and the search then explores too much (measured by replays).
func (g *process) solve() float64 {
	n := len(g.rows)
	g.mean = 0
	for _, t := range g.targets {
		g.mean += t / float64(n)
	}
	if cap(g.weights) < n {
		g.weights = make([]float64, n, 2*n)
	}
	w := g.weights[:n]
	quadratic, determinant := 0.0, 0.0
	for i := range w {
		w[i] = g.half[i] - g.mean*g.ones[i]
		quadratic += w[i] * w[i]
		determinant += math.Log(g.factor[i][i])
	}
	g.spread = max(quadratic/float64(n), 1e-12)
	for i := n - 1; i >= 0; i-- {
		f := g.factor[i]
		w[i] /= f[i]
		for m, x := range f[:i] {
			w[m] -= x * w[i]
		}
	}
	g.weights = w
	return -float64(n)/2*math.Log(g.spread) - determinant
}

// predict returns the mean and the standard deviation at a row. scratch has a place for each
// observation.
func (g *process) predict(row, scratch []float64) (mean, deviation float64) {
	k := scratch[:len(g.rows)]
	for i, other := range g.rows {
		k[i] = g.kernel(row, other)
	}
	mean = g.mean + dot(k, g.weights)
	rest := 1.0
	for i, f := range g.factor {
		k[i] = (k[i] - dot(f[:i], k[:i])) / f[i]
		rest -= k[i] * k[i]
	}
	return mean, math.Sqrt(max(rest, 1e-10) * g.spread)
}
