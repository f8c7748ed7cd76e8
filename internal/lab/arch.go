package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attune/internal/spec"
)

// Arch picks, of the architectures that a stage is for, the one to build: the one asked for; else the device's own, or the newest older
// one, whose PTX the driver compiles; with no device either, the newest.
func Arch(stage *spec.Stage, asked, deviceArch string) (string, error) {
	choice := stage.Name + " is for " + strings.Join(stage.Archs, ", ")
	if asked != "" {
		if !slices.Contains(stage.Archs, asked) {
			return "", RequestError(fmt.Sprintf("%s, not for %q", choice, asked))
		}
		if !runsOn(asked, deviceArch) {
			return "", RequestError(fmt.Sprintf("code for %s does not run on the device, which is %s", asked, deviceArch))
		}
		return asked, nil
	}
	best, bestNumber := "", -1
	for _, arch := range stage.Archs {
		if number, _ := archNumber(arch); runsOn(arch, deviceArch) && number > bestNumber {
			best, bestNumber = arch, number
		}
	}
	if best == "" {
		return "", RequestError(fmt.Sprintf("%s, and the device is %s", choice, deviceArch))
	}
	return best, nil
}

// runsOn says whether a device can run a build for arch, as machine code or by compiling its PTX. With no device every build will do.
func runsOn(arch, deviceArch string) bool {
	number, specific := archNumber(arch)
	have, _ := archNumber(deviceArch)
	return deviceArch == "" || number == have || number < have && !specific
}

// archNumber reads sm_89 as 89, and sm_90a as 90 with specific true: code for "a" runs on that chip alone.
func archNumber(arch string) (number int, specific bool) {
	digits := strings.TrimPrefix(arch, "sm_")
	if rest, ok := strings.CutSuffix(digits, "a"); ok {
		digits, specific = rest, true
	}
	number, _ = strconv.Atoi(digits) // the spec has checked the form, and a driver's own is right
	return number, specific
}

// native says whether machine code for arch runs on the device as it is.
func native(arch, deviceArch string) bool {
	code, _ := archNumber(arch)
	have, _ := archNumber(deviceArch)
	return code == have
}
