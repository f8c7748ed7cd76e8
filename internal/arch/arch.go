package arch

import (
	"fmt"
	"strconv"
	"strings"
)

// Compiled are the architectures of the CUDA compiler that attune installs, 13.0.
var Compiled = []string{
	"sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a",
	"sm_110", "sm_110a", "sm_120", "sm_120a", "sm_121", "sm_121a",
}

// FirstSimulated is the number of the oldest architecture whose arithmetic the simulator has.
const FirstSimulated = 80

// newestSimulated has all its instructions on the simulator.
const newestSimulated = "sm_90a"

// The libraries for C, Go and Python have kernels in FP8 and 16 bits for Hopper, and two in 8 and 16 bits
// that the driver compiles for every other architecture from this one on.
const (
	LibraryHopper   = "sm_90a"
	LibraryPortable = "sm_80"
)

// Number is 89 for sm_89. For sm_90a it is 90, and specific: code for an "a" architecture runs only on
// that chip. It is 0 for what is no architecture.
func Number(name string) (number int, specific bool) {
	digits := strings.TrimPrefix(name, "sm_")
	if rest, ok := strings.CutSuffix(digits, "a"); ok {
		digits, specific = rest, true
	}
	number, _ = strconv.Atoi(digits)
	return number, specific
}

// HasLibrary reports whether the libraries run on a device of an architecture.
func HasLibrary(device string) bool {
	return Runs(LibraryHopper, true, device) || Runs(LibraryPortable, true, device)
}

// Variable names an earlier architecture than that of the GPU, whose forms the libraries shall launch.
const Variable = "ATTUNE_ARCH"

// Named is the architecture whose forms the libraries launch on a GPU: its own, or the one that the value
// of Variable names. That is from LibraryPortable to that of the GPU.
func Named(gpu, named string) (string, error) {
	if named == "" || !HasLibrary(gpu) {
		return gpu, nil
	}
	_, specific := Number(named)
	if specific || !strings.HasPrefix(named, "sm_") || !Runs(LibraryPortable, true, named) || !Runs(named, true, gpu) {
		return "", fmt.Errorf("the variable %s is %q: it names an architecture from %s to that of the GPU, %s", Variable, named, LibraryPortable, gpu)
	}
	hopper, _ := Number(LibraryHopper)
	if number, _ := Number(named); number == hopper && !Runs(LibraryHopper, true, gpu) { // its code runs on no later GPU
		return "", fmt.Errorf("the variable %s is %s, and the GPU %s: code for Hopper runs on no other GPU; name another architecture, such as sm_89", Variable, named, gpu)
	}
	return named, nil
}

// Runs reports whether a device runs code for an architecture. PTX is compiled by the driver for all
// later ones. Machine code runs on those of the same major number. Specific code runs on its own.
func Runs(code string, isPTX bool, device string) bool {
	has, _ := Number(device)
	needs, specific := Number(code)
	if specific {
		return has == needs
	}
	return has >= needs && (isPTX || has/10 == needs/10)
}

// CompiledText, SimulatedText and LibraryText say in one line which architectures each is for.
var (
	CompiledText  = fmt.Sprintf("%s to %s", Compiled[0], Compiled[len(Compiled)-1])
	SimulatedText = fmt.Sprintf("sm_%d and later, without instructions newer than %s (tcgen05)", FirstSimulated, newestSimulated)
	LibraryText   = fmt.Sprintf("%s and later, most on %s", LibraryPortable, LibraryHopper)
)
