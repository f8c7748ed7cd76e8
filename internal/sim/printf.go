package sim

import (
	"fmt"
	"math"
	"strings"
)

// runPrintf is a call of vprintf(format, arguments): both are generic addresses; the arguments lie one after another, each at its own alignment.
func runPrintf(w *warp, o *op, mask uint32) {
	call := o.ctl
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		format := fromLittleEndian(paramValue(w.frame, call.args[0], lane))
		arguments := fromLittleEndian(paramValue(w.frame, call.args[1], lane))
		text := w.format(o, lane, w.cString(o, lane, format), arguments)
		if w.block.launch.options.Printf != nil {
			w.block.launch.options.Printf(text)
		}
		if len(call.returns) > 0 {
			setParam(w.frame, call.returns[0], lane, littleEndian(uint64(len(text)), 4))
		}
	}
}

// peek reads memory behind a generic address.
func (w *warp) peek(o *op, lane int, address uint64, size int) []byte {
	space, at := ofGeneric(address)
	data := w.reachAt(o, accessOf{what: "printf", space: space, bytes: size}, at, lane, reading)
	if data == nil {
		return w.nothing[:size]
	}
	return data
}

func (w *warp) cString(o *op, lane int, address uint64) string {
	var text []byte
	const most = 4096
	for len(text) < most {
		b := w.peek(o, lane, address+uint64(len(text)), 1)[0]
		if b == 0 {
			break
		}
		text = append(text, b)
	}
	return string(text)
}

// format does what C's printf does, for the conversions that kernels use.
func (w *warp) format(o *op, lane int, format string, arguments uint64) string {
	var out strings.Builder
	next := func(size uint64) uint64 {
		arguments = (arguments + size - 1) / size * size
		value := fromLittleEndian(w.peek(o, lane, arguments, int(size)))
		arguments += size
		return value
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		spec := "%"
		long := false
		for i++; i < len(format) && strings.IndexByte("+- #0123456789.hljzt", format[i]) >= 0; i++ {
			switch format[i] {
			case 'l', 'j', 'z', 't':
				long = true
			case 'h':
			default:
				spec += format[i : i+1]
			}
		}
		if i == len(format) {
			break
		}
		out.WriteString(w.convert(o, lane, spec, format[i], long, next))
	}
	return out.String()
}

func (w *warp) convert(o *op, lane int, spec string, verb byte, long bool, next func(uint64) uint64) string {
	integer := func() uint64 {
		if long {
			return next(8)
		}
		return next(4)
	}
	switch verb {
	case '%':
		return "%"
	case 'd', 'i':
		value := int64(integer())
		if !long {
			value = int64(int32(value))
		}
		return fmt.Sprintf(spec+"d", value)
	case 'u':
		return fmt.Sprintf(spec+"d", integer())
	case 'x', 'X', 'o', 'c':
		return fmt.Sprintf(spec+string(verb), integer())
	case 'p':
		return fmt.Sprintf("%#x", next(8))
	case 's':
		return fmt.Sprintf(spec+"s", w.cString(o, lane, next(8)))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return fmt.Sprintf(spec+string(verb), math.Float64frombits(next(8)))
	}
	return spec + string(verb)
}
