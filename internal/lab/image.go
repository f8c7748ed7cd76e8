package lab

import (
	"attune/internal/device"
	"attune/internal/toolchain"
)

// loadable is the part of an image that a device runs: the machine code ("cubin") if it was built
// and fits the device, else the PTX ("ptx"), which the device compiles or simulates.
func loadable(image *toolchain.Image, facts device.Facts) (form string, data []byte) {
	if image.Cubin != nil && native(image.Record.Arch, facts.Arch) {
		return "cubin", image.Cubin
	}
	return "ptx", image.PTX
}
