package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/run"
)

// The folders of the kernels with options, in E4M3 and in 16 bits.
const (
	prefillFolder   = "attention/prefill"
	prefill16Folder = "attention/prefill16"
)

// Every head dim is right on all shapes of the simulator with all checkers. So is a form with
// smaller steps, more stages and the transpose in a loop, on the shapes with the most options.
func TestPrefillIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, prefillFolder)
	all := kernel.Run.SimShapes
	for i, test := range []struct {
		name   string
		shapes []string
	}{
		{"prefill", all},
		{"prefill64", all},
		{"prefill256", all},
		{"prefill+TILE_N=128+KV_STAGES=3+TRANSPOSE_BATCH=0+USE_SKIP_MASKED=0", []string{"packed_all", "paged_192"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			t.Parallel()
			checkDeclared(t, kernel, builder, prefillFolder, test.name, sampleOf(t, i, inputs, test.shapes), func(r *run.Run) {
				if r.Build != nil && r.Build.Resources.StackBytes+r.Build.Resources.SpillBytes() > 0 {
					t.Errorf("it spills or uses a stack: %+v", r.Build.Resources)
				}
			})
		})
	}
}

// So is every stage in 16 bits, and other choices that its sources have, on the shapes with the most
// options.
func TestPrefill16IsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, prefill16Folder)
	all, few := kernel.Run.SimShapes, []string{"packed_all", "paged_192", "softcap", "tree_paged"}
	for i, test := range []struct {
		name   string
		shapes []string
	}{
		{"prefill16_d128", all},
		{"prefill16_d64", all},
		{"prefill16_d256", all},
		{"prefill16_d128_fp16", []string{"more", "narrow", "packed", "short", "paged_16", "peaks", "softcap", "alibi", "tree_paged", "dim_72"}},
		{"prefill16_d64_fp16", []string{"more", "narrow", "packed", "short", "paged_16", "peaks", "softcap", "alibi", "tree_paged", "dim_72"}},
		{"prefill16_d256_fp16", []string{"more", "narrow", "packed", "short", "paged_16", "peaks", "softcap", "alibi", "tree_paged", "dim_72"}},
		{"prefill16_d64+TILE_N=64+K_STAGES=2+V_STAGES=3+USE_SUM_COLUMNS=0+USE_PACK_EARLY=1+USE_Q_IN_SHARED=1", few},
	} {
		t.Run(test.name, func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			t.Parallel()
			checkDeclared(t, kernel, builder, prefill16Folder, test.name, sampleOf(t, i, inputs, test.shapes))
		})
	}
}

// A launch has the same results, bit for bit, as the one before, and as one with other blocks: tiles
// do not depend on each other.
func TestPrefill16RepeatsItself(t *testing.T) {
	j := newPrefillJob(t, "prefill16_d64", "packed_all")
	sim := simdevice.Open(simdevice.Options{})
	var before [][]byte
	for _, blocks := range []int{3, 3, 1} {
		j.Job.Grid[0] = blocks
		result, err := sim.Run(t.Context(), j.Job)
		if err != nil {
			t.Fatal(err)
		}
		for i := range before {
			if !slices.Equal(before[i], result.Outputs[i]) {
				t.Errorf("%d blocks: output %d differs", blocks, i)
			}
		}
		before = result.Outputs
	}
}

// The columns beyond a head dim are those of other heads where Q, K and V are views of one tensor. They
// are NaN here, and no output has them; those of O stay as they were.
func TestPrefill16KeepsToItsColumns(t *testing.T) {
	for i, test := range [][2]string{
		{"prefill16_d128", "dim_72"},
		{"prefill16_d64", "dim_80"},  // packed
		{"prefill16_d128", "dim_96"}, // pages
		{"prefill16_d256", "dim_40"},
		{"prefill16_d256", "mla"},
	} {
		t.Run(strings.Join(test[:], " "), func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			t.Parallel()
			j := newPrefillJob(t, test[0], test[1])
			const gap = 40 // columns
			for _, name := range []string{"q", "k", "v"} {
				m := j.arg(name + "_map").TensorMap
				columns := m.Dims[0]
				j.arg(name).Input = widen(j.arg(name).Input, 2*columns, 2*gap, 0xff)
				m.Strides = slices.Clone(m.Strides)
				for i := range m.Strides {
					m.Strides[i] = m.Strides[i] / columns * (columns + gap)
				}
			}
			columns := j.scalar("o_columns")
			o := j.arg("o_bf16")
			*o = device.Arg{Name: o.Name, InOut: widen(make([]byte, o.Output), 2*columns, 2*gap, 0xab)}
			for _, name := range []string{"o_stride_batch", "o_stride_head", "o_stride_row"} {
				stride := binary.LittleEndian.Uint64(j.arg(name).Scalar)
				j.arg(name).Scalar = binary.LittleEndian.AppendUint64(nil, stride/uint64(columns)*uint64(columns+gap))
			}
			outputs := j.run(t)
			index := slices.IndexFunc(outputs, func(x []byte) bool { return len(x) == len(o.InOut) })
			var rows []byte
			for data := outputs[index]; len(data) > 0; data = data[2*(columns+gap):] {
				rows = append(rows, data[:2*columns]...)
				if !slices.Equal(data[2*columns:2*(columns+gap)], slices.Repeat([]byte{0xab}, 2*gap)) {
					t.Fatalf("bytes behind a row of O are %x", data[2*columns:2*(columns+gap)])
				}
			}
			outputs[index] = rows
			j.compare(t, outputs)
		})
	}
}

// widen puts bytes behind each row.
func widen(data []byte, row, gap int, value byte) []byte {
	var wide []byte
	for ; len(data) > 0; data = data[row:] {
		wide = append(append(wide, data[:row]...), slices.Repeat([]byte{value}, gap)...)
	}
	return wide
}

// prefillJob is a launch of a kernel with options.
type prefillJob struct{ *declaredJob }

func newPrefillJob(t *testing.T, stage, shape string) prefillJob {
	t.Helper()
	folder := prefillFolder
	if strings.HasPrefix(stage, "prefill16") {
		folder = prefill16Folder
	}
	return prefillJob{newDeclaredJob(t, folder, stage, shape)}
}

// ints are the integers of an input, nil for a null pointer.
func (j prefillJob) ints(name string) []int {
	var values []int
	for data := j.arg(name).Input; len(data) > 0; data = data[4:] {
		values = append(values, int(int32(binary.LittleEndian.Uint32(data))))
	}
	return values
}

// scalar is the value of a scalar of 32 bits.
func (j prefillJob) scalar(name string) int {
	return int(int32(binary.LittleEndian.Uint32(j.arg(name).Scalar)))
}

// keyRows are, for each sequence, the keys that it has: indices into all keys of the tensor map,
// which go over the keys of a page or sequence first.
func (j prefillJob) keyRows() [][]int {
	offsets, lengths, pages := j.ints("cu_keys"), j.ints("lengths"), j.ints("page_table")
	keys, pageSize, maxPages := j.scalar("keys"), j.scalar("page_size"), j.scalar("max_pages")
	rows := make([][]int, j.scalar("batch"))
	for s := range rows {
		first, length := s*keys, keys
		if offsets != nil {
			first, length = offsets[s], offsets[s+1]-offsets[s]
		}
		if lengths != nil {
			length = min(length, max(0, lengths[s]))
		}
		for i := range length {
			row := first + i
			if pages != nil {
				row = pages[s*maxPages+i/pageSize]*pageSize + i%pageSize
			}
			rows[s] = append(rows[s], row)
		}
	}
	return rows
}

// A cache of K and V has anything behind the last key of a sequence, NaN too: another sequence, the
// rest of a page, or padding. No output may have it.
func TestPrefillIgnoresUnusedKeys(t *testing.T) {
	for i, test := range [][2]string{
		{"prefill64", "lengths"},
		{"prefill", "short"},
		{"prefill", "paged"},
		{"prefill64", "paged_16"},
		{"prefill256", "paged_128"},
		{"prefill16_d128", "lengths"},
		{"prefill16_d64", "short"},
		{"prefill16_d64_fp16", "paged"},
		{"prefill16_d128", "paged_16"},
		{"prefill16_d256", "paged_128"},
		{"prefill16_d64", "paged_short"},
		{"prefill16_d128", "dim_96"},
		{"prefill16_d256", "alibi_cap"},
		{"prefill16_d64", "tree_paged"},
	} {
		t.Run(strings.Join(test[:], " "), func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			t.Parallel()
			j := newPrefillJob(t, test[0], test[1])
			used := map[int]bool{}
			for _, row := range slices.Concat(j.keyRows()...) {
				used[row] = true
			}
			if spoilt := j.spoilKeys(func(row int) bool { return !used[row] }); spoilt == 0 {
				t.Fatal("every key is used")
			}
			j.check(t)
		})
	}
}

// Whatever the offsets of packed sequences are, no row is written but those that they have within O: nothing
// behind it, and no row of another sequence. One sequence has rows here.
func TestPrefillKeepsHostileOffsetsWithinO(t *testing.T) {
	const most, least = math.MaxInt32, math.MinInt32
	for i, test := range [][2]string{
		{"prefill64", "packed"}, // which reads Q by its pointer
		{"prefill", "packed_all"},
		{"prefill16_d128", "packed_all"},
		{"prefill16_d64", "tree_paged"},
	} {
		t.Run(strings.Join(test[:], " "), func(t *testing.T) {
			skipUnlessSampled(t, i, inputs)
			t.Parallel()
			rows := newPrefillJob(t, test[0], test[1]).scalar("total_queries")
			for _, offsets := range []struct {
				first      []int // the others are the last of them
				begin, end int
			}{
				{[]int{7, rows + 1000}, 7, rows},
				{[]int{-1000, 20}, 0, 20},
				{[]int{40, 20, 31}, 20, 31},
				{[]int{most, least, most}, 0, rows},
				{[]int{least, least, 9, least, least}, 0, 9},
				{[]int{rows + 1}, rows, rows},
			} {
				j := newPrefillJob(t, test[0], test[1])
				j.setInts("cu_queries", offsets.first)
				if j.ints("cu_keys") != nil {
					j.setInts("cu_keys", []int{least, most, -9, 64, 40, most})
				}
				j.checkRowsWritten(t, offsets.begin, offsets.end)
			}
		})
	}
}

// setInts sets the integers of an input, of which the last fills the rest.
func (j prefillJob) setInts(name string, values []int) {
	data := slices.Clone(j.arg(name).Input)
	j.arg(name).Input = data
	for i := range len(data) / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(int32(values[min(i, len(values)-1)])))
	}
}

// checkRowsWritten runs a launch whose packed O and log-sum-exp were something else, with bytes behind them.
func (j prefillJob) checkRowsWritten(t *testing.T, begin, end int) {
	t.Helper()
	rows, heads := j.scalar("total_queries"), j.scalar("kv_heads")*j.scalar("group")
	o := j.arg("o")
	if o.Output == 0 {
		o = j.arg("o_bf16")
	}
	planes := map[int]int{} // of an output, by its bytes: O has rows of all heads, the other a plane for each
	for arg, n := range map[*device.Arg]int{o: 1, j.arg("lse"): heads} {
		*arg = device.Arg{Name: arg.Name, InOut: slices.Repeat([]byte{0xab}, arg.Output+4096)}
		planes[len(arg.InOut)] = n
	}
	outputs := j.run(t)
	if len(outputs) != 2 {
		t.Fatalf("%d outputs", len(outputs))
	}
	for _, data := range outputs {
		width := (len(data) - 4096) / (planes[len(data)] * rows)
		before := slices.Repeat([]byte{0xab}, 4096)
		for i := range planes[len(data)] * rows {
			written := !slices.Equal(data[i*width:][:width], before[:width])
			if row := i % rows; written != (begin <= row && row < end) {
				t.Fatalf("rows %d to %d of %d: row %d: written: %t", begin, end, rows, row, written)
			}
		}
		if !slices.Equal(data[len(data)-4096:], before) {
			t.Fatal("bytes behind an output are written")
		}
	}
}

// A page that is none of the cache is zeros, and lengths are none below 0 or above the keys: nothing outside K
// and V is read.
func TestPrefillReadsPagesOutOfRangeAsZeros(t *testing.T) {
	for i, stage := range []string{"prefill64", "prefill16_d64"} {
		for k, page := range []int{-1, math.MinInt32, math.MaxInt32} {
			t.Run(fmt.Sprint(stage, page), func(t *testing.T) {
				skipUnlessSampled(t, i+k, 2)
				t.Parallel()
				j := newPrefillJob(t, stage, "paged_16")
				j.setInts("page_table", []int{page})
				if j.ints("lengths") != nil {
					j.setInts("lengths", []int{math.MinInt32, math.MaxInt32})
				}
				outputs := j.run(t)
				index := slices.IndexFunc(j.Args, func(a device.Arg) bool { return a.Output > 0 })
				o := slices.IndexFunc(outputs, func(x []byte) bool { return len(x) == j.Args[index].Output })
				if i := slices.IndexFunc(outputs[o], func(b byte) bool { return b&0x7f != 0 }); i >= 0 {
					t.Errorf("byte %d of O is %#x", i, outputs[o][i])
				}
			})
		}
	}
}

// Keys of NaN in one packed sequence leave the rows of all others as they were, bit for bit.
func TestPrefillSequencesAreApart(t *testing.T) {
	for _, stage := range []string{"prefill64", "prefill16_d64"} {
		t.Run(stage, func(t *testing.T) { checkApart(t, newPrefillJob(t, stage, "packed")) })
	}
}

func checkApart(t *testing.T, j prefillJob) {
	t.Helper()
	sim := simdevice.Open(simdevice.Options{})
	before, err := sim.Run(t.Context(), j.Job)
	if err != nil {
		t.Fatal(err)
	}
	rows, queries := j.keyRows(), j.ints("cu_queries")
	spoilt := slices.IndexFunc(rows, func(r []int) bool { return len(r) > 64 })
	j.spoilKeys(func(row int) bool { return slices.Contains(rows[spoilt], row) })
	after, err := sim.Run(t.Context(), j.Job)
	if err != nil {
		t.Fatal(err)
	}
	elements := len(j.arg("q").Input) / j.elementBytes()
	o := slices.IndexFunc(before.Outputs, func(x []byte) bool { return len(x) == 2*elements })
	width := len(before.Outputs[o]) / j.scalar("queries") // of a row of all heads
	changed := 0
	for row := range j.scalar("queries") {
		same := slices.Equal(before.Outputs[o][row*width:][:width], after.Outputs[o][row*width:][:width])
		if inside := queries[spoilt] <= row && row < queries[spoilt+1]; inside && !same {
			changed++
		} else if !inside && !same {
			t.Errorf("row %d has changed; rows %d to %d see NaN", row, queries[spoilt], queries[spoilt+1]-1)
		}
	}
	if changed == 0 {
		t.Error("no row sees the NaN")
	}
}

// elementBytes are those of Q, K and V.
func (j prefillJob) elementBytes() int {
	if j.arg("k_map").TensorMap.Type == "u8" {
		return 1
	}
	return 2
}

// spoilKeys sets keys to NaN in all heads, and returns their number.
func (j prefillJob) spoilKeys(spoil func(row int) bool) int {
	spoilt := 0
	for _, name := range []string{"k", "v"} {
		dims := j.arg(name + "_map").TensorMap.Dims       // column, key, head, sequence or page
		strides := j.arg(name + "_map").TensorMap.Strides // of the last three
		data := slices.Clone(j.arg(name).Input)
		for row := range dims[1] * dims[3] {
			if !spoil(row) {
				continue
			}
			spoilt++
			for head := range dims[2] {
				at := row%dims[1]*strides[0] + head*strides[1] + row/dims[1]*strides[2]
				for i := range dims[0] * j.elementBytes() {
					data[at+i] = 0xff // NaN in all types
				}
			}
		}
		j.arg(name).Input = data
	}
	return spoilt
}

// The random lengths of the packed shapes have the cases that they are for.
func TestPrefillShapesHaveEdges(t *testing.T) {
	none := map[string]int{}
	for _, shape := range []string{"packed", "short"} {
		j := newPrefillJob(t, "prefill64", shape)
		queries := j.ints("cu_queries")
		for s, keys := range j.keyRows() {
			rows := queries[s+1] - queries[s]
			for what, holds := range map[string]bool{
				"queries": rows == 0, "keys": rows > 0 && len(keys) == 0,
				"keys for its first queries": rows > len(keys) && len(keys) > 0, "rows in its second tile": rows > 128 && rows%128 > 0,
			} {
				if holds {
					none[what]++
				}
			}
		}
	}
	if len(none) < 4 {
		t.Errorf("sequences that lack something: %v; want queries, keys, keys for the first queries, and rows in the second tile", none)
	}
}
