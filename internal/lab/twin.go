package lab

import (
	"fmt"
	"slices"

	"attune/internal/run"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// code is what makes two images one program to the chip.
type code struct {
	hash, arch string
	launch     string // as text, which can be compared
}

func codeOf(image *toolchain.Image) code {
	if image == nil {
		return code{}
	}
	return code{image.Record.CodeHash, image.Record.Arch, fmt.Sprint(image.Record.Launch)}
}

// measurements has the first variant of a command that was measured, by its code. What is measured belongs to the code: another variant of which the
// compiler makes the same takes it over, because a second measurement would differ by chance alone. Who names one variant twice wants to see just that.
type measurements map[code]*measurement

type measurement struct {
	run    *run.Run
	parent code // that it was timed in turns with; none where it is zero
}

// keep offers a finished attempt to those that follow, if nothing in it was cut short. What a sanitizer saw stands in no row, and is not passed on.
func (m measurements) keep(a *attempt) {
	whole := a.twin == nil && a.record.Failure == "" && a.record.Asked.Sanitizer == "" && len(a.record.Correctness) == len(a.request.problems())
	if whole {
		m[codeOf(a.image)] = &measurement{a.record, a.parent}
	}
}

// takeOver begins an attempt with what was measured of its twin.
func (a *attempt) takeOver(twin *measurement) {
	a.twin = twin
	a.record.MeasuredAs = &run.MeasuredAs{Run: twin.run.ID, Variant: twin.run.Variant}
	a.record.Device, a.record.Facts, a.record.Loaded, a.record.Ran = twin.run.Device, twin.run.Facts, twin.run.Loaded, twin.run.Ran
}

// takenTimes are the twin's, if they were taken in turns with the same parent; nil where there are none.
func (a *attempt) takenTimes(shape tensor.Shape, parent *toolchain.Image) *run.Samples {
	if a.twin == nil || a.twin.parent != codeOf(parent) {
		return nil
	}
	i := slices.IndexFunc(a.twin.run.Samples, func(s run.Samples) bool { return s.Shape == shape.String() })
	if i < 0 {
		return nil
	}
	a.record.MeasuredAs.Times = true
	return &a.twin.run.Samples[i]
}
