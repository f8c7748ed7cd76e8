package form

import (
	"bytes"
	"slices"

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

// e4m3Arch is the first architecture with products of E4M3, which some portable forms are for.
const e4m3Arch = "sm_89"

// PortableArchs are those of portable forms. A stage has the code of the first that it is declared for.
var PortableArchs = []string{PortableArch, e4m3Arch}

// portableISA are the versions of PTX that portable forms need. That of CUDA 11.8 is the first whose
// driver has all functions that the libraries call; products of E4M3 came with CUDA 12.4. The compiler
// states its own, which only its driver and later ones take.
var portableISA = map[string]string{PortableArch: "7.8", e4m3Arch: "8.4"}

// isPortable reports whether the form is for all GPUs since Ampere, or since those with products of E4M3.
func (f *Form) isPortable() bool {
	return f.Kernel != DenseKernel && slices.Contains(PortableArchs, f.Target.Arch)
}

// PTX is the PTX of the image as a driver is given it.
func (f *Form) PTX() []byte {
	if !f.isPortable() {
		return f.Image.PTX
	}
	return withoutDebug(f.Image.PTX, portableISA[f.Target.Arch])
}

// withoutDebug returns PTX of another version, without what is for debuggers and readers: half of the text.
func withoutDebug(ptx []byte, version string) []byte {
	kept := make([]byte, 0, len(ptx))
	inSection := false
	for line := range bytes.Lines(ptx) {
		text := bytes.TrimSpace(line)
		switch {
		case inSection:
			inSection = !bytes.HasPrefix(text, []byte("}"))
		case isDebugSection(text):
			inSection, kept = true, withoutBlankLines(kept)
		case isForReaders(text):
			kept = withoutBlankLines(kept)
		case bytes.HasPrefix(line, []byte(".version ")):
			kept = append(append(append(kept, ".version "...), version...), '\n')
		default:
			kept = append(kept, line...)
		}
	}
	return kept
}

func isDebugSection(text []byte) bool {
	section, ok := bytes.CutPrefix(text, []byte(".section"))
	return ok && bytes.HasPrefix(bytes.TrimSpace(section), []byte(".debug_"))
}

func isForReaders(text []byte) bool {
	end := bytes.IndexAny(text, " \t")
	return bytes.HasPrefix(text, []byte("//")) || end > 0 && (string(text[:end]) == ".loc" || string(text[:end]) == ".file")
}

// withoutBlankLines cuts the blank lines at the end of a text.
func withoutBlankLines(text []byte) []byte {
	if trimmed := bytes.TrimRight(text, " \t\n"); len(trimmed) < len(text) {
		return text[:len(trimmed)+1]
	}
	return text
}

// Code is what the C library contains, and its kind: the machine code if it was built, else the PTX.
func (f *Form) Code() (kind string, code []byte) {
	if f.Image.Cubin != nil && !f.isPortable() {
		return Cubin, f.Image.Cubin
	}
	return PTX, f.PTX()
}
