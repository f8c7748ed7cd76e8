package arch_test

import (
	"strings"
	"testing"

	"attune/internal/arch"
)

func TestChipNamed(t *testing.T) {
	l4, err := arch.ChipNamed("l4")
	if err != nil || l4.Arch != "sm_89" || l4.Multiprocessors != 58 || l4.Rates.F16F32 != 1024 || l4.Limits().Shared != 100<<10 {
		t.Errorf("%+v, %v", l4, err)
	}
	if _, err := arch.ChipNamed("B300"); err == nil || !strings.Contains(err.Error(), `unknown chip "B300"; known are A100, `) {
		t.Errorf("%v", err)
	}
}

// Cards have the names of the driver too.
func TestChipOfDevice(t *testing.T) {
	for _, c := range []struct{ device, want string }{
		{"NVIDIA L4", "L4"},
		{"NVIDIA L40S", "L40S"},
		{"NVIDIA A10", "A10"},
		{"NVIDIA H200", "H200"},
		{"NVIDIA A100-SXM4-40GB", "A100"},
		{"NVIDIA A100-SXM4-80GB", "A100-80"},
		{"NVIDIA A100 80GB PCIe", "A100-80"},
		{"NVIDIA GeForce RTX 4090", "4090"},
		{"rtx 3090", "3090"},
		{"NVIDIA RTX A6000", "A6000"},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "PRO6000"},
		{"NVIDIA GeForce RTX 5090", "5090"},
		{"NVIDIA GeForce RTX 3090 Ti", ""},
		{"NVIDIA GeForce RTX 4090 D", ""},
		{"NVIDIA GeForce RTX 4090 Laptop GPU", ""},
		{"NVIDIA RTX 6000 Ada Generation", ""},
		{"NVIDIA H200X", ""},
		{"Tesla T4", ""},
		{"", ""},
	} {
		got, err := arch.ChipNamed(c.device)
		if got.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q is %q, %v; want %q", c.device, got.Name, err, c.want)
		}
		if err == nil && !got.Is(c.device) {
			t.Errorf("%q is no %s", c.device, got.Name)
		}
	}
	a100, _ := arch.ChipNamed("A100")
	if !a100.Is("NVIDIA A100-SXM4-80GB") || a100.Is("NVIDIA A10") {
		t.Error("A100 names both sizes of its memory, and no other card")
	}
}

// The rates of GeForce cards with FP32 sums are half of the others'.
func TestGeForce(t *testing.T) {
	card, _ := arch.ChipNamed("4090")
	for tflops, rate := range map[float64]float64{165.2: card.Rates.F16F32, 330.3: card.Rates.F16F16, 660.6: card.Rates.S8, 330.4: card.Rates.E4M3F32} {
		if got := rate * float64(card.Multiprocessors) * card.GHz * 1e9 / 1e12; got < 0.995*tflops || got > 1.005*tflops {
			t.Errorf("%.1f TFLOP/s, want %.1f", got, tflops)
		}
	}
}

func TestBest(t *testing.T) {
	all := []string{"sm_80", "sm_89", "sm_90a", "sm_120"}
	for name, want := range map[string]string{"A100": "sm_80", "A6000": "sm_80", "L4": "sm_89", "H200": "sm_90a", "5090": "sm_120"} {
		c, err := arch.ChipNamed(name)
		if got := c.Best(all); err != nil || got != want {
			t.Errorf("%s runs %q, want %s (%v)", name, got, want, err)
		}
	}
	l4, _ := arch.ChipNamed("L4")
	if got := l4.Best([]string{"sm_90a"}); got != "" {
		t.Errorf("an L4 runs %s", got)
	}
}

func TestResident(t *testing.T) {
	l4, known := arch.LimitsOf("sm_89")
	if !known {
		t.Fatal("sm_89 has no limits")
	}
	for _, c := range []struct{ warps, registers, shared, want int }{
		{4, 255, 65536, 1}, {4, 255, 40960, 2}, {8, 128, 0, 2}, {1, 0, 0, 24}, {48, 255, 0, 1},
	} {
		if got := l4.Resident(c.warps, c.registers, c.shared); got != c.want {
			t.Errorf("%+v: %d blocks", c, got)
		}
	}
	if h, known := arch.LimitsOf("sm_33"); known || h.Warps != 64 {
		t.Errorf("an unknown architecture has the limits %+v", h)
	}
}

func TestRates(t *testing.T) {
	for name, want := range map[string][2]float64{"sm_80": {2048, 0}, "sm_89": {1024, 2048}, "sm_90a": {4096, 8192}, "sm_120": {1024, 2048}} {
		r, known := arch.RatesOf(name)
		if half, narrow := r.Peak(); !known || half != want[0] || narrow != want[1] {
			t.Errorf("%s: %v, %v", name, half, narrow)
		}
	}
	if r, known := arch.RatesOf("sm_33"); known || r.Wgmma16 != 4096 {
		t.Errorf("an unknown architecture has the rates %+v", r)
	}
}

func TestChipOfArch(t *testing.T) {
	for name, want := range map[string]string{"sm_89": "L4", "sm_90a": "H200", "sm_120a": "5090", "sm_100": "H200"} {
		if got := arch.ChipOfArch(name); got.Name != want {
			t.Errorf("%s: %s, want %s", name, got.Name, want)
		}
	}
	if got := arch.ChipOfArch("sm_89").DRAMBytes(); got < 2.5 || got > 2.6 {
		t.Errorf("an L4 has %v bytes a clock", got)
	}
}
