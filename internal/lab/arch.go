package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attune/internal/spec"
)

// Arch is the architecture to build a stage for. It is the requested one if there is a request,
// else the device's, else the newest older one: the driver compiles its PTX. Without a device it is
// the newest.
func Arch(stage *spec.Stage, requested, deviceArch string) (string, error) {
	choice := stage.Name + " is for " + strings.Join(stage.Archs, ", ")
	if requested != "" {
		if !slices.Contains(stage.Archs, requested) {
			return "", RequestError(fmt.Sprintf("%s, not for %q", choice, requested))
		}
		if !runsOn(requested, deviceArch) {
			return "", RequestError(fmt.Sprintf("code for %s does not run on the device, which is %s", requested, deviceArch))
		}
		return requested, nil
	}
	best, bestNumber := "", -1
	for _, arch := range stage.Archs {
		if number, _ := ArchNumber(arch); runsOn(arch, deviceArch) && number > bestNumber {
			best, bestNumber = arch, number
		}
	}
	if best == "" {
		return "", RequestError(fmt.Sprintf("%s, and the device is %s", choice, deviceArch))
	}
	return best, nil
}

// runsOn reports whether a device can run a build for arch, as machine code or by compiling its
// PTX. Without a device it is true.
func runsOn(arch, deviceArch string) bool {
	number, specific := ArchNumber(arch)
	have, _ := ArchNumber(deviceArch)
	return deviceArch == "" || number == have || number < have && !specific
}

// ArchNumber is 89 for sm_89. For sm_90a it is 90, and specific: code for an "a" architecture runs
// only on that chip.
func ArchNumber(arch string) (number int, specific bool) {
	digits := strings.TrimPrefix(arch, "sm_")
	if rest, ok := strings.CutSuffix(digits, "a"); ok {
		digits, specific = rest, true
	}
	number, _ = strconv.Atoi(digits) // the spec has checked the form, and the driver's is well-formed
	return number, specific
}

// native reports whether the device runs machine code for arch without compiling.
func native(arch, deviceArch string) bool {
	code, _ := ArchNumber(arch)
	have, _ := ArchNumber(deviceArch)
	return code == have
}
