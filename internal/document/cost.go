package document

import (
	"math"
	"strconv"
	"strings"
)

// CostScale returns the unit that costs are printed in, and the factor to it.
func CostScale(unit string) (name string, factor float64) {
	switch word, _, _ := strings.Cut(unit, " "); word {
	case "seconds":
		return "us", 1e6
	case "joules":
		return "mJ", 1e3
	default:
		return word, 1
	}
}

// CostUnit names the unit of CostScale in a sentence about an objective. A simulated cost says that it
// is no time.
func CostUnit(unit string) string {
	if name, factor := CostScale(unit); factor != 1 {
		return name
	}
	return unit
}

// costText prints a cost in the unit of CostScale with four significant digits; "-" if there is none.
func costText(cost *float64, unit string) string {
	if cost == nil {
		return "-"
	}
	_, factor := CostScale(unit)
	v := factor * *cost
	if math.Abs(v) >= 1000 && math.Abs(v) < 1e10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
