package tensor

import "math"

// Every product below that meets a sum is wrapped in float64(...). Without it Go may fuse the two on processors that
// can, which rounds once instead of twice and gives other bits there.

// normalQuantile is the x below which a standard normal variable lies with probability p, to about 16 digits. It is
// algorithm AS 241 (PPND16): M. J. Wichura, The Percentage Points of the Normal Distribution, Applied Statistics 37
// (1988), pages 477 to 484.
func normalQuantile(p float64) float64 {
	if inTail(p) {
		return normalTail(p)
	}
	return normalCentre(p)
}

// stretch is how many numbers are made at once.
const stretch = 256

// normalQuantiles is normalQuantile of a stretch at most, rounded. It takes all of them as if they were in the centre, and then those
// that are in the tails once more: a processor cannot foresee which they are, and a wrong guess costs it as much as a number.
// Of the tails it knows the nearer part only: farther out that is off by 5e-13 at most, which of no p of uniform's changes the float32.
func normalQuantiles(values []float32, all []float64) {
	var x [stretch]float64
	var tails [stretch]int
	count := 0
	for i, p := range all {
		x[i] = centreArgument(p)
		tails[count] = i
		if inTail(p) {
			count++
		}
	}
	centre.ofAll(x[:len(all)])
	for i, p := range all {
		values[i] = float32(float64((p - 0.5) * x[i]))
	}
	for j, i := range tails[:count] {
		x[j] = tailArgument(all[i]) - tailStart
	}
	tail.ofAll(x[:count])
	for j, i := range tails[:count] {
		values[i] = float32(math.Copysign(x[j], all[i]-0.5))
	}
}

// inTail says which of the two has a p.
func inTail(p float64) bool { return math.Abs(p-0.5) > 0.425 }

func normalCentre(p float64) float64 { return float64((p - 0.5) * centre.at(centreArgument(p))) }

func centreArgument(p float64) float64 {
	q := p - 0.5
	return 0.180625 - float64(q*q)
}

func normalTail(p float64) float64 {
	r := tailArgument(p)
	x := 0.0
	if r <= farStart {
		x = tail.at(r - tailStart)
	} else {
		x = farTail.at(r - farStart)
	}
	return math.Copysign(x, p-0.5)
}

// Where the two parts of the tails begin.
const (
	tailStart = 1.6
	farStart  = 5
)

func tailArgument(p float64) float64 { return math.Sqrt(-logarithm(min(p, 1-p))) }

// rational is a quotient of two polynomials, each with its constant term first.
type rational struct {
	over, under [8]float64
}

// ofAll puts the quotient of each x in its place. Drawing large inputs is mostly this.
func (f *rational) ofAll(x []float64) {
	done := quotients(x, f)
	for i := done; i < len(x); i++ {
		x[i] = f.at(x[i])
	}
}

// at has no loop.
func (f *rational) at(x float64) float64 {
	a, b := &f.over, &f.under
	over, under := float64(a[7]*x)+a[6], float64(b[7]*x)+b[6]
	over, under = float64(over*x)+a[5], float64(under*x)+b[5]
	over, under = float64(over*x)+a[4], float64(under*x)+b[4]
	over, under = float64(over*x)+a[3], float64(under*x)+b[3]
	over, under = float64(over*x)+a[2], float64(under*x)+b[2]
	over, under = float64(over*x)+a[1], float64(under*x)+b[1]
	over, under = float64(over*x)+a[0], float64(under*x)+b[0]
	return over / under
}

var (
	centre = rational{
		over: [8]float64{
			3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
			4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3,
		},
		under: [8]float64{
			1, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
			2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3,
		},
	}
	tail = rational{
		over: [8]float64{
			1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
			1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
		},
		under: [8]float64{
			1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
			1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
		},
	}
	farTail = rational{
		over: [8]float64{
			6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
			2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
		},
		under: [8]float64{
			1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
			7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
		},
	}
)

// logarithm is the natural one, for a positive normal x, to within a few units of the last place.
func logarithm(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = 2*fraction, exponent-1
	}
	// ln f = 2 (s + s^3/3 + s^5/5 + ...) with s = (f-1)/(f+1), at most 0.172: eleven terms leave less than 1e-18 of it.
	s := (fraction - 1) / (fraction + 1)
	square := float64(s * s)
	series := 0.0
	for _, share := range oddShares {
		series = float64(series*square) + share
	}
	return float64(2*float64(s*series)) + float64(float64(exponent)*math.Ln2)
}

// oddShares are 1/21, 1/19 and so on to 1.
var oddShares = func() (shares [11]float64) {
	for i := range shares {
		shares[i] = 1 / float64(21-2*i)
	}
	return shares
}()
