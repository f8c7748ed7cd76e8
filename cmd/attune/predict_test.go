package main

import (
	"testing"

	"attune/internal/arch"
	"attune/internal/device"
)

func TestHasChip(t *testing.T) {
	for _, c := range []struct {
		device, chip string
		want         bool
	}{
		{"NVIDIA L4", "L4", true},
		{"NVIDIA L40S", "L4", false},
		{"NVIDIA A100-SXM4-40GB", "A100", true},
		{"NVIDIA GeForce RTX 4090", "4090", true},
		{"NVIDIA H200", "L4", false},
		{"", "L4", false},
	} {
		chip, err := arch.ChipNamed(c.chip)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasChip(device.Facts{Name: c.device}, chip); got != c.want {
			t.Errorf("%q is an %s: %v", c.device, c.chip, got)
		}
	}
}
