package arch

import (
	"fmt"
	"slices"
	"strings"
)

const kilobyte = 1024

// Limits are those of a multiprocessor, by NVIDIA's table of compute capabilities.
type Limits struct {
	BlockShared int // bytes of shared memory of a block, opted into
	Shared      int // bytes of all blocks; the driver takes 1 KB of each
	Warps       int
	Blocks      int
	FP32Lanes   int // FP32 multiply-adds per clock
}

var limits = map[int]Limits{
	75:  {64 * kilobyte, 64 * kilobyte, 32, 16, 64},
	80:  {163 * kilobyte, 164 * kilobyte, 64, 32, 64},
	86:  {99 * kilobyte, 100 * kilobyte, 48, 16, 128},
	87:  {163 * kilobyte, 164 * kilobyte, 48, 16, 128},
	89:  {99 * kilobyte, 100 * kilobyte, 48, 24, 128},
	90:  {227 * kilobyte, 228 * kilobyte, 64, 32, 128},
	100: {227 * kilobyte, 228 * kilobyte, 64, 32, 128},
	103: {227 * kilobyte, 228 * kilobyte, 64, 32, 128},
	120: {99 * kilobyte, 100 * kilobyte, 48, 24, 128},
	121: {99 * kilobyte, 100 * kilobyte, 48, 24, 128},
}

// Registers of a multiprocessor, and of a block. Those of a thread are allocated in steps.
const (
	RegisterFile = 65536
	registerUnit = 8
	driverShared = kilobyte // of each block
	warpLanes    = 32
)

// WarpRegisters are the registers that a warp is given whose threads have some.
func WarpRegisters(ofThread int) int {
	return (ofThread + registerUnit - 1) / registerUnit * registerUnit * warpLanes
}

// Resident is how many blocks a multiprocessor runs at once: at least 1. Registers are those of a
// thread, or 0 if they are unknown.
func (l Limits) Resident(warps, registers, shared int) int {
	warps = max(1, warps)
	blocks := min(l.Blocks, l.Warps/warps, l.Shared/(shared+driverShared))
	if registers > 0 {
		blocks = min(blocks, RegisterFile/(WarpRegisters(registers)*warps))
	}
	return max(1, blocks)
}

// unknown is the architecture whose figures stand for those of an unknown one.
const unknown = 90

// LimitsOf are the limits of an architecture, and whether they are known.
func LimitsOf(name string) (l Limits, known bool) {
	number, _ := Number(name)
	if l, known = limits[number]; !known {
		l = limits[unknown]
	}
	return l, known
}

// Rates are dense FLOPs per clock of the tensor cores of one multiprocessor, by operands and
// accumulators. 0 means that the chip has no such product.
type Rates struct {
	F16F32, F16F16   float64 // FP16 or BF16 by mma.sync
	S8               float64
	E4M3F32, E4M3F16 float64
	Wgmma16, Wgmma8  float64 // of warpgroups
}

// rates are those of the cards for servers and workstations. GeForce cards have half of some.
var rates = map[int]Rates{
	80:  {F16F32: 2048, F16F16: 2048, S8: 4096},
	86:  {F16F32: 1024, F16F16: 1024, S8: 2048},
	87:  {F16F32: 1024, F16F16: 1024, S8: 2048},
	89:  {F16F32: 1024, F16F16: 1024, S8: 2048, E4M3F32: 2048, E4M3F16: 2048},
	90:  {F16F32: 2728, F16F16: 2728, S8: 5455, Wgmma16: 4096, Wgmma8: 8192},
	100: {F16F32: 8192, F16F16: 8192, S8: 16384, E4M3F32: 16384, E4M3F16: 16384},
	103: {F16F32: 8192, F16F16: 8192, S8: 16384, E4M3F32: 16384, E4M3F16: 16384},
	120: {F16F32: 1024, F16F16: 1024, S8: 2048, E4M3F32: 2048, E4M3F16: 2048},
}

// RatesOf are the rates of an architecture's cards for servers, and whether they are known.
func RatesOf(name string) (r Rates, known bool) {
	number, _ := Number(name)
	if r, known = rates[number]; !known {
		r = rates[unknown]
	}
	return r, known
}

// Peak are the highest rates of 16-bit and of 8-bit floating-point operands. The second is 0 if the
// chip widens them.
func (r Rates) Peak() (half, narrow float64) {
	return max(r.F16F32, r.Wgmma16), max(r.E4M3F32, r.Wgmma8)
}

// Chip is a card whose times can be predicted.
type Chip struct {
	Name            string  `json:"name"`
	Arch            string  `json:"arch"`
	Multiprocessors int     `json:"multiprocessors"`
	GHz             float64 `json:"clock_ghz"` // boost
	Rates           Rates   `json:"-"`
	L2Bytes         int     `json:"l2_bytes"`
	DRAM            float64 `json:"dram_bytes_per_second"`
	// Measured are the figures that were measured, with their source. The others are the data sheet's.
	Measured string `json:"measured,omitempty"`
}

const (
	megabyte = 1 << 20
	gigabyte = 1e9 // per second
)

// geForce are the rates of an architecture's GeForce cards, whose FP32 sums take twice as long.
func geForce(number int) Rates {
	r := rates[number]
	r.F16F32 /= 2
	r.E4M3F32 /= 2
	return r
}

// Chips are the known cards. Rates follow from the data sheets: TFLOP/s / (multiprocessors x clock).
var Chips = []Chip{
	{"A100", "sm_80", 108, 1.41, rates[80], 40 * megabyte, 1555 * gigabyte, ""},
	{"A100-80", "sm_80", 108, 1.41, rates[80], 40 * megabyte, 2039 * gigabyte, ""},
	{"A10", "sm_86", 72, 1.695, rates[86], 6 * megabyte, 600 * gigabyte, ""},
	{"A6000", "sm_86", 84, 1.80, rates[86], 6 * megabyte, 768 * gigabyte, ""},
	{"3090", "sm_86", 82, 1.695, geForce(86), 6 * megabyte, 936 * gigabyte, ""},
	{"L4", "sm_89", 58, 2.04, rates[89], 48 * megabyte, 300 * gigabyte, ""},
	{"L40S", "sm_89", 142, 2.52, rates[89], 96 * megabyte, 864 * gigabyte, ""},
	{"4090", "sm_89", 128, 2.52, geForce(89), 72 * megabyte, 1008 * gigabyte, "tensor rates: mmapeak, 176.8, 350, 681, 351 and 701 TFLOP/s"},
	{"H200", "sm_90", 132, 1.98, rates[90], 60 * megabyte, 4220 * gigabyte, "DRAM: a copy, bytes read and written; mma.sync: operands from memory, 8 warps, 2026-11-19"},
	{"5090", "sm_120", 170, 2.41, geForce(120), 96 * megabyte, 1792 * gigabyte, "tensor rates with FP32 sums: a public rate probe"},
	{"PRO6000", "sm_120", 188, 2.41, rates[120], 128 * megabyte, 1792 * gigabyte, "tensor rates with FP16 operands: a public rate probe"},
}

// ChipNamed finds a card by its name, in any case, or by that of the driver, such as NVIDIA A100-SXM4-80GB.
func ChipNamed(name string) (Chip, error) {
	var found *Chip
	for i := range Chips {
		c := &Chips[i]
		if strings.EqualFold(c.Name, name) {
			return *c, nil
		}
		if c.Is(name) && (found == nil || len(c.words()) > len(found.words())) {
			found = c
		}
	}
	if found == nil {
		return Chip{}, fmt.Errorf("unknown chip %q; known are %s", name, ChipNames())
	}
	return *found, nil
}

// words are those of the driver's name of the card.
func (c Chip) words() []string {
	switch c.Name {
	case "A100-80":
		return []string{"A100", "80GB"}
	case "PRO6000":
		return []string{"PRO", "6000"}
	}
	return []string{c.Name}
}

// otherCards are words by which the names of other cards differ from that of one, such as RTX 3090 Ti.
var otherCards = []string{"TI", "D", "LAPTOP"}

// Is reports whether a device of a name, such as NVIDIA L4, is the card. An A100 is also one of 80 GB.
func (c Chip) Is(device string) bool {
	has := strings.FieldsFunc(strings.ToUpper(device), func(r rune) bool { return r == ' ' || r == '-' })
	isOther := func(word string) bool { return slices.Contains(otherCards, word) }
	lacks := func(word string) bool { return !slices.Contains(has, word) }
	return !slices.ContainsFunc(has, isOther) && !slices.ContainsFunc(c.words(), lacks)
}

// ChipNames are the names of all known cards, with commas.
func ChipNames() string {
	names := make([]string, len(Chips))
	for i, c := range Chips {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// ChipOfArch is the first card of an architecture; an H200 for one that has none.
func ChipOfArch(name string) Chip {
	number, _ := Number(name)
	fallback := Chip{}
	for _, c := range Chips {
		n, _ := Number(c.Arch)
		if n == number {
			return c
		}
		if n == unknown {
			fallback = c
		}
	}
	return fallback
}

// DRAMBytes are the bytes from DRAM per clock and multiprocessor.
func (c Chip) DRAMBytes() float64 { return c.DRAM / float64(c.Multiprocessors) / (c.GHz * 1e9) }

// Limits are those of the card's multiprocessors.
func (c Chip) Limits() Limits {
	l, _ := LimitsOf(c.Arch)
	return l
}

// Best is the newest of some architectures whose machine code the card runs: of the same major
// number, and of a minor number at most its own. It is empty if there is none.
func (c Chip) Best(archs []string) string {
	own, _ := Number(c.Arch)
	best, highest := "", 0
	for _, name := range archs {
		n, specific := Number(name)
		if n/10 == own/10 && n <= own && (!specific || n == own) && n >= highest {
			best, highest = name, n
		}
	}
	return best
}
