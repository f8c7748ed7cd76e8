package arch_test

import (
	"strings"
	"testing"

	"attune/internal/arch"
	"attune/internal/sim/mma"
)

func TestNumber(t *testing.T) {
	for name, want := range map[string]int{"sm_75": 75, "sm_90a": 90, "sm_121a": 121, "": 0, "gfx90": 0} {
		if number, _ := arch.Number(name); number != want {
			t.Errorf("%q is %d, want %d", name, number, want)
		}
	}
	if _, specific := arch.Number("sm_90a"); !specific {
		t.Error("code for sm_90a runs on other chips")
	}
}

// The simulator refuses the architectures that are not in its text, and no others.
func TestSimulated(t *testing.T) {
	for _, name := range arch.Compiled {
		number, _ := arch.Number(name)
		if _, err := mma.ChipOf(name); (err == nil) != (number >= arch.FirstSimulated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		arch.CompiledText:  "sm_75 to sm_121a",
		arch.SimulatedText: "sm_80 and later, without instructions newer than sm_90a (tcgen05)",
		arch.LibraryText:   "sm_80 and later, most on sm_90a",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for device, want := range map[string]bool{"sm_75": false, "sm_80": true, "sm_86": true, "sm_90": true, "sm_120": true} {
		if arch.HasLibrary(device) != want {
			t.Errorf("the libraries run on %s: %t, want %t", device, !want, want)
		}
	}
}

func TestRuns(t *testing.T) {
	for _, test := range []struct {
		code   string
		ptx    bool
		device string
		want   bool
	}{
		{"sm_80", false, "sm_80", true},
		{"sm_80", false, "sm_89", true},
		{"sm_89", false, "sm_86", false},
		{"sm_80", false, "sm_90", false},
		{"sm_80", true, "sm_90", true},
		{"sm_80", true, "sm_120", true},
		{"sm_80", true, "sm_75", false},
		{"sm_90a", false, "sm_90", true},
		{"sm_90a", true, "sm_100", false},
	} {
		if arch.Runs(test.code, test.ptx, test.device) != test.want {
			t.Errorf("code for %s (PTX: %t) runs on %s: %t, want %t", test.code, test.ptx, test.device, !test.want, test.want)
		}
	}
}

// A variable names an earlier architecture than that of the GPU.
func TestNamed(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{"": "sm_90", "sm_80": "sm_80", "sm_89": "sm_89", "sm_90": "sm_90", "sm_75": "", "sm_91": "", "sm_90a": "", "80": "", "x": ""} {
		got, err := arch.Named("sm_90", named)
		if got != want || (err == nil) == (want == "") {
			t.Errorf("%q: %q, %v; want %q", named, got, err, want)
		}
	}
	if got, err := arch.Named("sm_75", "sm_80"); got != "sm_75" || err != nil {
		t.Errorf("a GPU without kernels: %q, %v", got, err)
	}
	if got, err := arch.Named("sm_120", "sm_90"); err == nil || !strings.Contains(err.Error(), "code for Hopper runs on no other GPU") {
		t.Errorf("Hopper's code on a later GPU: %q, %v", got, err)
	}
	if got, err := arch.Named("sm_120", "sm_89"); got != "sm_89" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
