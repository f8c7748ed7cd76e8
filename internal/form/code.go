package form

import (
	"regexp"

	"attune/internal/arch"
)

// The kinds of code.
const (
	Cubin = "cubin" // machine code
	PTX   = "PTX"   // which the driver compiles
)

// PortableArch is the architecture of the forms for all GPUs since Ampere. Their code is PTX: the
// source is the same for each, and the driver knows those that come later.
const PortableArch = arch.LibraryPortable

// portableISA is the version of PTX that portable forms need: that of CUDA 11.8, the first whose driver
// has all functions that the libraries call. The compiler states its own, which only its driver and
// later ones take.
const portableISA = "7.8"

var versionLine = regexp.MustCompile(`(?m)^\.version .*$`)

// isPortable reports whether the form is for all GPUs since Ampere.
func (f *Form) isPortable() bool { return f.Kernel == Warp }

// PTX is the PTX of the image as a driver is given it.
func (f *Form) PTX() []byte {
	if !f.isPortable() {
		return f.Image.PTX
	}
	return versionLine.ReplaceAll(f.Image.PTX, []byte(".version "+portableISA))
}

// Code is what the C library contains, and its kind: the machine code if it was built, else the PTX.
func (f *Form) Code() (kind string, code []byte) {
	if f.Image.Cubin != nil && !f.isPortable() {
		return Cubin, f.Image.Cubin
	}
	return PTX, f.PTX()
}
