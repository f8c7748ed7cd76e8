package exec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"

	"attune/internal/arch"
)

// A fat binary is a container of images of one module: PTX and machine code for several
// architectures, each possibly compressed.

// Magic numbers.
const (
	fatMagic = 0xba55ed50
	elfMagic = 0x464c457f

	// partsVersion is the version of a container that the client's linker makes: all its images are parts
	// of one module.
	partsVersion = 0x4154
)

// Kinds and flags of an image of the container.
const (
	kindPTX = 1

	flagLZ4  = 0x2000
	flagZstd = 0x8000
)

// fatImage is an image of PTX.
type fatImage struct {
	arch int // such as 90
	text []byte
}

// NoPTXError is the error of a module that has machine code alone.
type NoPTXError struct {
	Arch  string // that the PTX should be for
	Later string // the oldest architecture that there is PTX for, if all are later
}

func (e *NoPTXError) Error() string {
	number := strings.TrimPrefix(e.Arch, "sm_")
	text := "the program has machine code and no PTX, which the simulator runs"
	if e.Later != "" {
		text = fmt.Sprintf("the program has PTX for %s and later, and the simulated device is %s (--arch sets another)", e.Later, e.Arch)
	}
	return fmt.Sprintf("%s; build it with -gencode arch=compute_%s,code=compute_%s, or with `attune nvcc` in the place of nvcc", text, number, number)
}

// ptxOf returns the PTX of a module for an architecture: of a fat binary, or the text itself. A module
// of several translation units has a text for each.
func ptxOf(image []byte, device string) ([]byte, error) {
	if len(image) < 4 {
		return nil, errors.New("the image of the module is empty")
	}
	switch binary.LittleEndian.Uint32(image) {
	case fatMagic:
		return linkedPTX(image, device)
	case elfMagic:
		return nil, &NoPTXError{Arch: device}
	}
	return bytes.TrimRight(image, "\x00"), nil
}

// linkedPTX links the PTX of all containers of a module. NVIDIA's device runtime has machine code only,
// and is left out.
func linkedPTX(data []byte, device string) ([]byte, error) {
	var units [][]byte
	var first error
	for len(data) >= 16 && binary.LittleEndian.Uint32(data) == fatMagic {
		size := uint64(binary.LittleEndian.Uint16(data[6:])) + binary.LittleEndian.Uint64(data[8:])
		if size > uint64(len(data)) || size < 16 {
			return nil, fmt.Errorf("read the fat binary: %w", errFat)
		}
		if binary.LittleEndian.Uint16(data[4:]) == partsVersion {
			parts, err := readFat(data[:size])
			if err != nil {
				return nil, fmt.Errorf("read the fat binary: %w", err)
			}
			for _, part := range parts {
				units = append(units, part.text)
			}
			data = data[size:]
			continue
		}
		unit, err := fatPTX(data[:size], device)
		switch {
		case err == nil:
			units = append(units, unit)
		case first == nil:
			first = err
		}
		data = data[size:]
	}
	if len(units) == 0 {
		return nil, cmp.Or(first, fmt.Errorf("read the fat binary: %w", errFat))
	}
	return linkPTX(units), nil
}

// fatPTX chooses the PTX for the newest architecture that runs on the device.
func fatPTX(data []byte, device string) ([]byte, error) {
	images, err := readFat(data)
	if err != nil {
		return nil, fmt.Errorf("read the fat binary: %w", err)
	}
	number, _ := arch.Number(device)
	var best *fatImage
	later := 0
	for i := range images {
		image := &images[i]
		switch {
		case image.arch > number:
			if later == 0 || image.arch < later {
				later = image.arch
			}
		case !arch.Runs(target(image.text), true, device):
		case best == nil || image.arch >= best.arch:
			best = image
		}
	}
	if best != nil {
		return best.text, nil
	}
	missing := &NoPTXError{Arch: device}
	if later > 0 {
		missing.Later = fmt.Sprintf("sm_%d", later)
	}
	return nil, missing
}

// target is the architecture that a PTX text names.
func target(text []byte) string {
	_, rest, _ := bytes.Cut(text, []byte(".target"))
	name := strings.FieldsFunc(string(rest[:min(len(rest), 64)]), func(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) })
	if len(name) == 0 {
		return ""
	}
	return name[0]
}

var errFat = errors.New("it is not complete")

// readFat reads the PTX of a container. Its header has a magic number, a version, and the sizes of the
// header and of the images. Each image has a header too.
func readFat(data []byte) ([]fatImage, error) {
	le := binary.LittleEndian
	if len(data) < 16 {
		return nil, errFat
	}
	header, size := uint64(le.Uint16(data[6:])), le.Uint64(data[8:])
	if header > uint64(len(data)) || size > uint64(len(data))-header {
		return nil, errFat
	}
	data = data[header : header+size]
	var images []fatImage
	for len(data) >= 64 {
		header, payload := uint64(le.Uint32(data[4:])), le.Uint64(data[8:])
		if header < 64 || header > uint64(len(data)) || payload > uint64(len(data))-header {
			return nil, errFat
		}
		if le.Uint16(data) == kindPTX {
			text, err := unpack(data[:header], data[header:header+payload])
			if err != nil {
				return nil, err
			}
			images = append(images, fatImage{int(le.Uint32(data[28:])), bytes.TrimRight(text, "\x00")})
		}
		data = data[header+payload:]
	}
	return images, nil
}

// maxText bounds the PTX of a module in bytes.
const maxText = 1 << 30

// unpack returns the text of an image. Its header has the compressed size at 16, flags at 40, and the
// size of the text at 56.
func unpack(header, payload []byte) ([]byte, error) {
	le := binary.LittleEndian
	flags, packed, size := le.Uint64(header[40:]), uint64(le.Uint32(header[16:])), le.Uint64(header[56:])
	if size > maxText {
		return nil, fmt.Errorf("an image of %d bytes", size)
	}
	if packed > 0 && packed <= uint64(len(payload)) {
		payload = payload[:packed]
	}
	switch {
	case flags&flagZstd != 0:
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxText))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(payload, make([]byte, 0, size))
	case flags&flagLZ4 != 0:
		return unpackLZ4(payload, int(size))
	}
	return payload, nil
}
