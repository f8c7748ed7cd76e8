package tensor

import "math"

// In this file every product that is added to something is wrapped in float64(...). Otherwise Go
// may fuse the two on some processors, which rounds once instead of twice and gives different bits.

// normalQuantile returns the x below which a standard normal variable lies with probability p, to
// about 16 digits. It is algorithm AS 241 (PPND16): M. J. Wichura, The Percentage Points of the
// Normal Distribution, Applied Statistics 37 (1988), pages 477 to 484.
func normalQuantile(p float64) float64 {
	if inTail(p) {
		return normalTail(p)
	}
	return normalCentre(p)
}

// batchSize is the largest number of quantiles that normalQuantiles computes in one call.
const batchSize = 256

// normalQuantiles writes normalQuantile of at most batchSize probabilities, rounded to float32. It
// evaluates all of them with the formula for the centre, then those in the tails again. A branch
// per element would be slower: it cannot be predicted, and a misprediction costs as much as an
// element. For the tails it uses the near formula only. Farther out that is off by at most 5e-13,
// which changes the float32 of no p that uniform returns.
func normalQuantiles(values []float32, all []float64) {
	var x [batchSize]float64
	var tails [batchSize]int
	count := 0
	for i, p := range all {
		x[i] = centreArgument(p)
		tails[count] = i
		if inTail(p) {
			count++
		}
	}
	centre.evaluateAll(x[:len(all)])
	for i, p := range all {
		values[i] = float32(float64((p - 0.5) * x[i]))
	}
	for j, i := range tails[:count] {
		x[j] = tailArgument(all[i]) - tailStart
	}
	tail.evaluateAll(x[:count])
	for j, i := range tails[:count] {
		values[i] = float32(math.Copysign(x[j], all[i]-0.5))
	}
}

// inTail reports whether the formula for the tails applies to p, and not the one for the centre.
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

// The arguments at which the near and the far tail begin.
const (
	tailStart = 1.6
	farStart  = 5
)

func tailArgument(p float64) float64 { return math.Sqrt(-Logarithm(min(p, 1-p))) }

// rational is a quotient of two polynomials, each with its constant term first. The assembly
// depends on this layout.
type rational struct {
	numerator, denominator [8]float64
}

// evaluateAll replaces each x by f(x). Drawing large inputs spends most of its time here.
func (f *rational) evaluateAll(x []float64) {
	done := evaluateVector(x, f)
	for i := done; i < len(x); i++ {
		x[i] = f.at(x[i])
	}
}

// at evaluates f by Horner's rule, unrolled for speed.
func (f *rational) at(x float64) float64 {
	a, b := &f.numerator, &f.denominator
	num, den := float64(a[7]*x)+a[6], float64(b[7]*x)+b[6]
	num, den = float64(num*x)+a[5], float64(den*x)+b[5]
	num, den = float64(num*x)+a[4], float64(den*x)+b[4]
	num, den = float64(num*x)+a[3], float64(den*x)+b[3]
	num, den = float64(num*x)+a[2], float64(den*x)+b[2]
	num, den = float64(num*x)+a[1], float64(den*x)+b[1]
	num, den = float64(num*x)+a[0], float64(den*x)+b[0]
	return num / den
}

var (
	centre = rational{
		numerator: [8]float64{
			3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
			4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3,
		},
		denominator: [8]float64{
			1, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
			2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3,
		},
	}
	tail = rational{
		numerator: [8]float64{
			1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
			1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
		},
		denominator: [8]float64{
			1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
			1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
		},
	}
	farTail = rational{
		numerator: [8]float64{
			6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
			2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
		},
		denominator: [8]float64{
			1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
			7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
		},
	}
)

// Logarithm returns the natural logarithm of a positive normal x, to within a few units in the last
// place. Every machine computes the same bits, unlike math.Log.
func Logarithm(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = 2*fraction, exponent-1
	}
	// ln f = 2 (s + s^3/3 + s^5/5 + ...) with s = (f-1)/(f+1). |s| is at most 0.172, so that the
	// terms after the eleventh add less than 1e-18.
	s := (fraction - 1) / (fraction + 1)
	square := float64(s * s)
	series := 0.0
	for _, coefficient := range seriesCoefficients {
		series = float64(series*square) + coefficient
	}
	return float64(2*float64(s*series)) + float64(float64(exponent)*math.Ln2)
}

// seriesCoefficients are 1/21, 1/19, ..., 1/3, 1.
var seriesCoefficients = func() (coefficients [11]float64) {
	for i := range coefficients {
		coefficients[i] = 1 / float64(21-2*i)
	}
	return coefficients
}()
