package sim

import (
	"math"
	"strings"
	"testing"
)

// The expected texts are those of glibc 2.36.
func TestPrintfNumbers(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, c := range []struct {
		spec  string
		value any
		want  string
		stars []int
	}{
		{"%a", 3.0, "0x1.8p+1", nil},
		{"%.0a", 1.99, "0x2p+0", nil},
		{"%.1a", 1.99, "0x2.0p+0", nil},
		{"%a", 0.0, "0x0p+0", nil},
		{"%a", 5e-324, "0x0.0000000000001p-1022", nil},
		{"%.2a", 5e-320, "0x0.00p-1022", nil},
		{"%12.3a", 0.1, "  0x1.99ap-4", nil},
		{"%A", -0.1, "-0X1.999999999999AP-4", nil},
		{"%012a", 1.0, "0x0000001p+0", nil},
		{"%.15a", 1.0, "0x1.000000000000000p+0", nil},
		{"%#a", 1.0, "0x1.p+0", nil},
		{"%f", inf, "inf", nil},
		{"%F", -inf, "-INF", nil},
		{"%5.1e", inf, "  inf", nil},
		{"%05f", inf, "  inf", nil},
		{"%+g", inf, "+inf", nil},
		{"% f", inf, " inf", nil},
		{"%-6f", math.NaN(), "nan   ", nil},
		{"%g", 0.1 + 0.2, "0.3", nil},
		{"%g", 1e6, "1e+06", nil},
		{"%#g", 1.0, "1.00000", nil},
		{"%08.2f", -3.14159, "-0003.14", nil},
		{"%*.*f", 2.5, "   2.50", []int{7, 2}},
		{"%*d", 7, "7    ", []int{-5}},
		{"%.*f", 2.5, "2.500000", []int{-1}},
		{"%#x", 0, "0", nil},
		{"%#X", 255, "0XFF", nil},
		{"%#o", 8, "010", nil},
		{"%.0d", 0, "", nil},
		{"%+.3d", 5, "+005", nil},
		{"%05.2d", 7, "   07", nil},
		{"%05d", -7, "-0007", nil},
		{"%hhd", 300, "44", nil},
		{"%hd", 70000, "4464", nil},
		{"%u", -1, "4294967295", nil},
		{"%+u", 1, "1", nil},
		{"%lld", -5, "-5", nil},
		{"%999999999d", 1, strings.Repeat(" ", maxText-1) + "1", nil},
	} {
		var s conversion
		stars := c.stars
		if n := s.parse(c.spec, func() int { n := stars[0]; stars = stars[1:]; return n }); n != len(c.spec) {
			t.Errorf("%s: %d bytes parsed", c.spec, n)
		}
		var got string
		switch v := c.value.(type) {
		case float64:
			got = s.float(v)
		case int:
			got = s.integer(uint64(v))
		}
		if got != c.want {
			t.Errorf("%s of %v: %q, want %q", c.spec, c.value, got, c.want)
		}
	}
}
