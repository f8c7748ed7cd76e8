package predict

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"attune/internal/arch"
)

// Calibration is a record of measurements on one card, and the model that was fitted to it.
type Calibration struct {
	Device    string  `json:"device"`
	Chip      string  `json:"chip"` // in arch.Chips
	Date      string  `json:"date"`
	Model     Model   `json:"model"`
	Residuals Summary `json:"residuals"` // of the held-out points
	Rates     []Rate  `json:"rates"`
	Points    []Point `json:"points"`
}

// Rate is a measured rate of a multiprocessor, by an instruction on operands that the compiler does not
// know.
type Rate struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	PerClock float64 `json:"per_clock"` // and multiprocessor
}

// Point is a measured time. In throttled twins each matrix product is issued `repeat` times.
type Point struct {
	Variant  string  `json:"variant"`
	Shape    string  `json:"shape"`
	Repeat   int     `json:"repeat"`
	Resident int     `json:"resident_blocks"` // by shared memory that was asked for; at most what fits
	Cycles   float64 `json:"cycles"`          // of a multiprocessor, by its own counter
	US       float64 `json:"us"`
	Work     Work    `json:"work"`
}

// Summary are the errors of predictions: |predicted / measured - 1|.
type Summary struct {
	Points int     `json:"points"`
	Median float64 `json:"median"`
	Worst  float64 `json:"worst"`
	On     string  `json:"on"`
}

// String is the line of every output.
func (s Summary) String() string {
	return fmt.Sprintf("error on %d held-out times of an %s: median %.0f %%, worst %.0f %%", s.Points, s.On, 100*s.Median, 100*s.Worst)
}

//go:embed calibration.json
var recorded []byte

// Recorded is the calibration of the package.
var Recorded = sync.OnceValue(func() *Calibration {
	c := &Calibration{}
	if err := json.Unmarshal(recorded, c); err != nil {
		panic("BUG: calibration.json: " + err.Error())
	}
	return c
})

// chip is the card of the measurements.
func (c *Calibration) chip() arch.Chip {
	chip, err := arch.ChipNamed(c.Chip)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return chip
}

// error is ln(predicted / measured) in cycles of the clock of the measurement.
func (c *Calibration) error(m Model, p Point) float64 {
	chip := c.chip()
	chip.GHz = p.Cycles / p.US / 1e3
	return math.Log(m.timeWith(p.Work, chip, p.Resident).Microseconds / p.US)
}

// heldOut reports whether a point is not fitted: all points of every third variant.
func (c *Calibration) heldOut(p Point) bool {
	var variants []string
	for _, q := range c.Points {
		if !slices.Contains(variants, q.Variant) {
			variants = append(variants, q.Variant)
		}
	}
	return slices.Index(variants, p.Variant)%3 == 2
}

// split are the points that are fitted, and the others.
func (c *Calibration) split() (fitted, held []Point) {
	for _, p := range c.Points {
		if c.heldOut(p) {
			held = append(held, p)
		} else {
			fitted = append(fitted, p)
		}
	}
	return fitted, held
}

// summary are the errors of a model on points.
func (c *Calibration) summary(m Model, points []Point) Summary {
	var errs []float64
	for _, p := range points {
		errs = append(errs, math.Abs(math.Expm1(c.error(m, p))))
	}
	slices.Sort(errs)
	s := Summary{Points: len(errs), On: c.Chip}
	if len(errs) > 0 {
		s.Median, s.Worst = errs[len(errs)/2], errs[len(errs)-1]
	}
	return s
}

// Fit finds the constants with the least squared logarithmic errors on the fitted points, by searches
// along each of them in turn.
func (c *Calibration) Fit() (Model, Summary) {
	fitted, held := c.split()
	loss := func(m Model) float64 {
		sum := 0.0
		for _, p := range fitted {
			e := c.error(m, p)
			sum += e * e
		}
		return sum
	}
	best := Model{Kappa: 0.2, Math: 0.6, MathBeside: 0.6, Power: 0.7, Barrier: 100, Spill: 20, Tail: 0.5, Launch: 1, L2Bytes: c.Model.L2Bytes}
	least := loss(best)
	for step := 0.5; step > 1e-3; {
		improved := false
		for _, factor := range []float64{1 + step, 1 / (1 + step)} {
			for i := range best.constants() {
				m := best
				*m.constants()[i] *= factor
				if l := loss(m); l < least {
					best, least, improved = m, l, true
				}
			}
		}
		if !improved {
			step /= 2
		}
	}
	return best, c.summary(best, held)
}

// constants are those that are fitted. The rate of L2 was measured by itself.
func (m *Model) constants() []*float64 {
	return []*float64{&m.Kappa, &m.Math, &m.MathBeside, &m.Power, &m.Barrier, &m.Spill, &m.Tail, &m.Launch}
}
