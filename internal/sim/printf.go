package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// runPrintf runs vprintf(format, arguments). Both are generic addresses. The arguments follow each
// other, each at its own alignment. The result is the number of arguments that the format takes.
func runPrintf(w *warp, o *op, mask uint32) {
	call := o.ctl
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		format := fromLittleEndian(paramValue(w.frame, call.args[0], lane))
		a := &printfArguments{w: w, o: o, lane: lane, address: fromLittleEndian(paramValue(w.frame, call.args[1], lane))}
		w.block.launch.print(a.format(w.cString(o, lane, format)))
		setParam(w.frame, call.returns[0], lane, littleEndian(uint64(a.taken), 4))
	}
}

// printfArguments reads the arguments of a printf one after another.
type printfArguments struct {
	w       *warp
	o       *op
	lane    int
	address uint64 // of the next one
	taken   int
}

func (a *printfArguments) next(size uint64) uint64 {
	a.address = (a.address + size - 1) / size * size
	value := fromLittleEndian(a.w.peek(a.o, a.lane, a.address, int(size)))
	a.address += size
	a.taken++
	return value
}

// format formats text like C's printf, for the conversions that kernels use.
func (a *printfArguments) format(format string) string {
	var out strings.Builder
	for len(format) > 0 && out.Len() < maxText {
		percent := strings.IndexByte(format, '%')
		if percent < 0 {
			out.WriteString(format)
			break
		}
		out.WriteString(format[:percent])
		var c conversion
		length := c.parse(format[percent:], func() int { return int(int32(a.next(4))) })
		text := format[percent : percent+length]
		format = format[percent+length:]
		if c.verb != 0 {
			out.WriteString(a.convert(&c, text))
		}
	}
	return out.String()[:min(out.Len(), maxText)]
}

// conversion is one conversion specification of printf.
type conversion struct {
	minus, zero, alternate bool
	sign                   string // before a number that is not negative
	width, precision       int    // a precision below 0 is none
	size                   uint64 // bytes of an integer
	verb                   byte   // 0 where the format ends before it
}

// parse reads a specification from the percent sign on, and returns its length. argument returns the
// value of a `*`.
func (c *conversion) parse(text string, argument func() int) int {
	i := 1 + c.parseFlags(text[1:])
	number := func() int {
		if i < len(text) && text[i] == '*' {
			i++
			return argument()
		}
		n := 0
		for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
			n = min(10*n+int(text[i]-'0'), maxText)
		}
		return n
	}
	if c.width = number(); c.width < 0 {
		c.minus, c.width = true, -c.width
	}
	c.precision = -1
	if i < len(text) && text[i] == '.' {
		i++
		c.precision = number()
	}
	c.width, c.precision = min(c.width, maxText), min(c.precision, maxText)
	c.size = 4
	for ; i < len(text) && strings.IndexByte("hljzt", text[i]) >= 0; i++ {
		if text[i] == 'h' {
			c.size /= 2
		} else {
			c.size = 8
		}
	}
	if i < len(text) {
		c.verb = text[i]
		i++
	}
	c.size = max(c.size, 1)
	return i
}

// parseFlags reads flags, and returns how many there are.
func (c *conversion) parseFlags(text string) int {
	for i := range len(text) {
		switch text[i] {
		case '-':
			c.minus = true
		case '0':
			c.zero = true
		case '#':
			c.alternate = true
		case '+':
			c.sign = "+"
		case ' ':
			if c.sign == "" {
				c.sign = " "
			}
		default:
			return i
		}
	}
	return len(text)
}

// convert formats the next argument. text is the specification, which is printed if it is unknown.
func (a *printfArguments) convert(c *conversion, text string) string {
	switch c.verb {
	case '%':
		return "%"
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return c.integer(a.next(max(c.size, 4)))
	case 'c':
		return c.pad("", string([]byte{byte(a.next(4))}), false)
	case 'p':
		if address := a.next(8); address != 0 {
			return c.pad("", fmt.Sprintf("%#x", address), false)
		}
		return c.pad("", "(nil)", false)
	case 's':
		s := a.w.cString(a.o, a.lane, a.next(8))
		if c.precision >= 0 {
			s = s[:min(c.precision, len(s))]
		}
		return c.pad("", s, false)
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		return c.float(math.Float64frombits(a.next(8)))
	}
	return text
}

// pad fills a text up to the width. Zeros go between the prefix, such as a sign, and the text.
func (c *conversion) pad(prefix, text string, zeros bool) string {
	n := max(0, c.width-len(prefix)-len(text))
	switch {
	case c.minus:
		return prefix + text + strings.Repeat(" ", n)
	case zeros && c.zero:
		return prefix + strings.Repeat("0", n) + text
	}
	return strings.Repeat(" ", n) + prefix + text
}

func (c *conversion) integer(value uint64) string {
	unused := 64 - 8*c.size
	value = value << unused >> unused
	prefix, base := "", 10
	switch c.verb {
	case 'd', 'i':
		prefix = c.sign
		if signed := int64(value<<unused) >> unused; signed < 0 {
			prefix, value = "-", -uint64(signed)
		}
	case 'x', 'X':
		base = 16
		if c.alternate && value != 0 {
			prefix = "0x"
		}
	case 'o':
		base = 8
	}
	digits := strconv.FormatUint(value, base)
	if c.precision == 0 && value == 0 {
		digits = ""
	}
	digits = strings.Repeat("0", max(0, c.precision-len(digits))) + digits
	if base == 8 && c.alternate && !strings.HasPrefix(digits, "0") {
		digits = "0" + digits
	}
	if c.verb == 'X' {
		prefix, digits = strings.ToUpper(prefix), strings.ToUpper(digits)
	}
	return c.pad(prefix, digits, c.precision < 0)
}

func (c *conversion) float(value float64) string {
	prefix := c.sign
	if math.Signbit(value) {
		prefix, value = "-", -value
	}
	verb := c.verb | 0x20 // in lower case
	var text string
	switch {
	case math.IsInf(value, 0):
		text = "inf"
	case math.IsNaN(value):
		text = "nan"
	case verb == 'a':
		prefix += "0x"
		text = c.hexadecimal(math.Float64bits(value))
	default:
		precision, flag := 6, ""
		if c.precision >= 0 {
			precision = c.precision
		}
		if c.alternate {
			flag = "#"
		}
		text = fmt.Sprintf("%"+flag+".*"+string(verb), precision, value)
	}
	if c.verb != verb {
		prefix, text = strings.ToUpper(prefix), strings.ToUpper(text)
	}
	return c.pad(prefix, text, !math.IsInf(value, 0) && !math.IsNaN(value))
}

// hexadecimal formats the bits of a finite number that is not negative like glibc's %a, without 0x.
// A subnormal number keeps its exponent, and a carry goes to the digit before the point.
func (c *conversion) hexadecimal(bits uint64) string {
	const fraction, digits = 52, 13
	exponent, mantissa := int(bits>>fraction), bits&(1<<fraction-1)
	switch {
	case bits == 0:
	case exponent == 0:
		exponent = -1022
	default:
		exponent, mantissa = exponent-1023, mantissa|1<<fraction
	}
	kept := digits
	if 0 <= c.precision && c.precision < digits {
		kept = c.precision
		step := uint64(1) << (4 * (digits - kept))
		half, rest := step/2, mantissa%step
		mantissa -= rest
		if rest > half || rest == half && mantissa&step != 0 {
			mantissa += step
		}
	}
	after := fmt.Sprintf("%013x", mantissa&(1<<fraction-1))[:kept]
	if c.precision < 0 {
		after = strings.TrimRight(after, "0")
	}
	after += strings.Repeat("0", max(0, c.precision-len(after)))
	if after != "" || c.alternate {
		after = "." + after
	}
	return fmt.Sprintf("%d%sp%+d", mantissa>>fraction, after, exponent)
}
