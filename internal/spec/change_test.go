package spec

import "testing"

func TestChange(t *testing.T) {
	k := loadToy(t)
	check := func(variant, from, want string) {
		t.Helper()
		v, err := k.Variant(variant)
		if err != nil {
			t.Fatal(err)
		}
		f, err := k.Variant(from)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Diff(f); got != want {
			t.Errorf("from %s to %s: %q, want %q", from, variant, got, want)
		}
	}
	check("stage2", "stage2", "")
	check("stage2+TILE_N=64", "stage2", "+TILE_N=64")
	check("stage1", "stage1+USE_CP_ASYNC=0", "+USE_CP_ASYNC=1")
	check("stage1+USE_CP_ASYNC=0", "stage1", "+USE_CP_ASYNC=0")

	other := *k.Stages[0]
	other.Source = "hopper/k.cu"
	changed := Variant{&other, append([]int(nil), other.values...)}
	changed.values[len(changed.values)-1]++
	knob := k.Knobs[len(k.Knobs)-1].Name
	want := "hopper/k.cu+" + Setting{knob, changed.values[len(changed.values)-1]}.String()
	if got := changed.Diff(k.Stages[0].Variant()); got != want {
		t.Errorf("with another source: %q, want %q", got, want)
	}
}
