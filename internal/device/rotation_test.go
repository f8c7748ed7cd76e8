package device_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
)

// The rotations of argument 0 with secret 0 are the sequence of SplitMix64 with seed 0, because the
// count is multiplied by its increment.
func TestShiftIsSplitMix64(t *testing.T) {
	for i, want := range []int{0xE220A8397B1DCDAF >> 32, 0x6E789E6AA1B965F4 >> 32, 0x06C45D188009454F >> 32} {
		if got := (device.Rotation{Count: uint64(i) + 1}).Shift(0, 1<<32); got != want {
			t.Errorf("rotation %d of 2^32 units: a shift of %#x; want %#x", i+1, got, want)
		}
	}
	for i, want := range []byte{0xFF, 0x7F, 0xFF} { // the lowest bit
		if got := (device.Rotation{Count: uint64(i) + 1}).Poison(0); got != want {
			t.Errorf("rotation %d: a poison of %#x; want %#x", i+1, got, want)
		}
	}
}

func TestShiftIsInside(t *testing.T) {
	inside := func(secret, count uint64, step uint32, argument uint8, units uint32) bool {
		n := int(units) + 1
		shift := device.Rotation{Secret: secret, Count: count, Step: step}.Shift(int(argument), n)
		return shift >= 0 && shift < n
	}
	if err := quick.Check(inside, nil); err != nil {
		t.Error(err)
	}
	if shift := (device.Rotation{Secret: 5}).Shift(3, 1); shift != 0 {
		t.Errorf("one unit is shifted by %d", shift)
	}
}

// Each of secret, count, step and argument changes the shift, and the shifts are spread evenly.
func TestShiftsDiffer(t *testing.T) {
	const n = 1000
	for name, shift := range map[string]func(i, units int) int{
		"secrets":   func(i, units int) int { return device.Rotation{Secret: uint64(i)}.Shift(0, units) },
		"counts":    func(i, units int) int { return device.Rotation{Count: uint64(i)}.Shift(0, units) },
		"steps":     func(i, units int) int { return device.Rotation{Step: uint32(i)}.Shift(0, units) },
		"arguments": func(i, units int) int { return device.Rotation{Secret: 7}.Shift(i, units) },
	} {
		seen, tenths := map[int]bool{}, make([]int, 10)
		for i := range n {
			seen[shift(i, 1<<50)] = true
			tenths[shift(i, 10)]++
		}
		if len(seen) != n {
			t.Errorf("%d %s have %d shifts", n, name, len(seen))
		}
		if least, most := slices.Min(tenths), slices.Max(tenths); least < n/10*6/10 || most > n/10*14/10 {
			t.Errorf("the shifts of %d %s by 0 to 9 units are %v", n, name, tenths)
		}
	}
}

func TestPoisons(t *testing.T) {
	found := map[byte]int{}
	for i := range 100 {
		found[device.Rotation{Secret: 1, Count: uint64(i)}.Poison(i%7)]++
	}
	if len(found) != 2 || found[0x7F] < 20 || found[0xFF] < 20 {
		t.Errorf("the poisons are %v; want both 0x7F and 0xFF", found)
	}
}

func numbered(bytes int) []byte {
	data := make([]byte, bytes)
	for i := range data {
		data[i] = byte(i)
	}
	return data
}

func TestRotate(t *testing.T) {
	job := device.Job{Entry: "k", Args: []device.Arg{
		device.Rotating(numbered(240), 16), device.Rotating(numbered(240), 4), device.Rotating(numbered(240), 1),
		device.In(numbered(240)), device.Out(240),
		{InOut: numbered(240)},
		device.Int32(5), device.Rotating(numbered(16), 16),
	}}
	before := fmt.Sprint(job)
	r := device.Rotation{Secret: 3, Count: 1, Step: 1}
	got := job.Rotate(r)
	if fmt.Sprint(job) != before {
		t.Error("Rotate has changed the job")
	}
	for i, arg := range got.Args {
		unit := job.Args[i].Unit
		if unit == 0 {
			if diff := cmp.Diff(job.Args[i], arg); diff != "" {
				t.Errorf("argument %d cannot be rotated: %s", i, diff)
			}
			continue
		}
		units := len(arg.Input) / unit
		shift := r.Shift(i, units)
		for unitIndex := range units {
			from := (unitIndex + shift) % units * unit
			if !bytes.Equal(arg.Input[unitIndex*unit:][:unit], job.Args[i].Input[from:][:unit]) {
				t.Errorf("argument %d, units of %d bytes, a shift of %d: unit %d is wrong", i, unit, shift, unitIndex)
			}
		}
		if units > 1 && shift == 0 {
			t.Errorf("argument %d is not rotated; choose another rotation for this test", i)
		}
	}
}

// A rotation keeps the units of an input: it is a permutation.
func TestRotateIsAPermutation(t *testing.T) {
	units := func(data []byte, unit int) []string {
		var all []string
		for chunk := range slices.Chunk(data, unit) {
			all = append(all, string(chunk))
		}
		slices.Sort(all)
		return all
	}
	keeps := func(data []byte, secret, count uint64, step uint32) bool {
		for _, unit := range device.RotationUnits {
			whole := data[:len(data)/unit*unit]
			job := device.Job{Args: []device.Arg{device.Int32(1), device.Rotating(whole, unit)}}
			got := job.Rotate(device.Rotation{Secret: secret, Count: count, Step: step})
			if !slices.Equal(units(got.Args[1].Input, unit), units(whole, unit)) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(keeps, nil); err != nil {
		t.Error(err)
	}
}

func TestRotationTable(t *testing.T) {
	m := &devicetest.Machine{}
	job := device.Job{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []device.Arg{
		device.Int32(5), device.Rotating(numbered(32), 4), device.Rotating(numbered(32), 16), device.Rotating(numbered(32), 1),
		device.In(numbered(48)), device.In(numbered(20)),
		{InOut: numbered(7)},
		device.Out(64), device.Out(12), device.Out(5),
		{Scratch: 8},
	}}
	bind := func() []*device.Buffer {
		buffers, _, err := device.Bind(m, job)
		if err != nil {
			t.Fatal(err)
		}
		return buffers
	}
	originals, copied := bind(), bind()
	const fixed = math.MaxUint32
	want := [][3]uint64{ // units, unit, index
		{8, 4, 1},
		{2, 16, 2},
		{32, 1, 3},
		{3, 16, fixed},
		{5, 4, fixed},
		{7, 1, fixed},
		{4, 16, 7},
		{3, 4, 8},
		{5, 1, 9},
		{0, 4, fixed},
	}
	table := device.RotationTable(job, copied, originals)
	if len(table) != 32*len(want) || len(copied) != len(want) {
		t.Fatalf("a table of %d bytes for %d buffers", len(table), len(copied))
	}
	for i, w := range want {
		original := uint64(originals[i].Start())
		if i >= 6 {
			original = 0 // an output, or scratch
		}
		entry := table[32*i:]
		word := func(at int) uint64 { return binary.LittleEndian.Uint64(entry[at:]) }
		half := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(entry[at:])) }
		got := []uint64{word(0), word(8), word(16), half(24), half(28)}
		if diff := cmp.Diff([]uint64{uint64(copied[i].Start()), original, w[0], w[1], w[2]}, got); diff != "" {
			t.Errorf("entry %d: %s", i, diff)
		}
	}
}

func TestCheckRefusesUnits(t *testing.T) {
	check := func(arg device.Arg, refused bool) {
		t.Helper()
		job := newJob()
		job.Args[0] = arg
		switch err := job.Check(); {
		case !refused && err != nil:
			t.Errorf("%+v: %v", arg, err)
		case refused && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("argument 0 cannot be rotated by units of %d bytes", arg.Unit))):
			t.Errorf("%+v: got %v; want it refused", arg, err)
		}
	}
	for unit, refused := range map[int]bool{0: false, 1: false, 4: false, 16: false, -1: true, 2: true, 3: true, 8: true, 32: true, 48: true} {
		check(device.Rotating(make([]byte, 96), unit), refused)
	}
	check(device.Rotating(make([]byte, 95), 1), false)
	check(device.Rotating(make([]byte, 95), 4), true)
	check(device.Rotating(make([]byte, 92), 4), false)
	check(device.Rotating(make([]byte, 92), 16), true)
	check(device.Arg{Output: 16, Unit: 16}, true)
	check(device.Arg{InOut: make([]byte, 16), Unit: 4}, true)
	check(device.Arg{Scalar: make([]byte, 4), Unit: 4}, true)
}
