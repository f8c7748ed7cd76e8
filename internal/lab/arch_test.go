package lab

import (
	"errors"
	"testing"

	"attune/internal/spec"
)

func TestArch(t *testing.T) {
	t.Parallel()
	check := func(archs []string, requested, deviceArch, want string) {
		t.Helper()
		got, err := Arch(&spec.Stage{Name: "s", Archs: archs}, requested, deviceArch)
		var request RequestError
		if err != nil && (got != "" || !errors.As(err, &request)) {
			t.Errorf("%q and %v", got, err)
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("of %v, requested %q, device %q: got %q, want %q", archs, requested, deviceArch, got, want)
		}
	}
	all := []string{"sm_80", "sm_89", "sm_90a"}
	check(all, "", "", "sm_90a") // the newest
	check(all, "", "sm_80", "sm_80")
	check(all, "", "sm_86", "sm_80") // the newest older one
	check(all, "", "sm_89", "sm_89")
	check(all, "", "sm_90", "sm_90a") // code for "a" runs on that chip
	check(all, "", "sm_100", "sm_89") // and only on that chip
	check(all, "", "sm_120", "sm_89")
	check(all, "", "sm_75", "s is for sm_80, sm_89, sm_90a, and the device is sm_75")
	check([]string{"sm_90a"}, "", "sm_100", "s is for sm_90a, and the device is sm_100")
	check([]string{"sm_89", "sm_80"}, "", "sm_120", "sm_89") // in any order of the spec
	check([]string{"sm_80", "sm_100a"}, "", "", "sm_100a")   // by number, not by text
	check(all, "sm_80", "", "sm_80")
	check(all, "sm_80", "sm_90", "sm_80")
	check(all, "sm_90a", "sm_90", "sm_90a")
	check(all, "sm_90", "", `s is for sm_80, sm_89, sm_90a, not for "sm_90"`)
	check(all, "sm_89", "sm_86", "code for sm_89 does not run on the device, which is sm_86")
	check(all, "sm_90a", "sm_100", "code for sm_90a does not run on the device, which is sm_100")
}

func TestNative(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arch, device string
		want         bool
	}{
		{"sm_89", "sm_89", true},
		{"sm_90a", "sm_90", true},
		{"sm_80", "sm_86", false},
		{"sm_89", "sm_100", false},
	} {
		if native(test.arch, test.device) != test.want {
			t.Errorf("native(%s, %s) is not %t", test.arch, test.device, test.want)
		}
	}
}
