package lab

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/arch"
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
	for _, name := range stage.Archs {
		if number, _ := arch.Number(name); runsOn(name, deviceArch) && number > bestNumber {
			best, bestNumber = name, number
		}
	}
	if best == "" {
		return "", RequestError(fmt.Sprintf("%s, and the device is %s", choice, deviceArch))
	}
	return best, nil
}

// runsOn reports whether a device can run a build for an architecture, as machine code or by compiling its
// PTX. Without a device it is true.
func runsOn(code, deviceArch string) bool {
	number, specific := arch.Number(code)
	have, _ := arch.Number(deviceArch)
	return deviceArch == "" || number == have || number < have && !specific
}

// native reports whether the device runs machine code without compiling.
func native(code, deviceArch string) bool {
	number, _ := arch.Number(code)
	have, _ := arch.Number(deviceArch)
	return number == have
}
