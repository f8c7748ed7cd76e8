package clib

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/problem/declared"
	"attune/internal/spec"
	"attune/kernels"
)

// The addresses of the arguments of declared kernels, by their names.
const workspaceAddress = 0x100800000000

var addressOf = map[string]uint64{
	"q": 0x100000000000, "k": 0x100100000000, "v": 0x100200000000, "o": 0x100300000000, "o_bf16": 0x100300000000, "lse": 0x100400000000,
	"descale_q": 0x100500000000, "descale_k": 0x100600000000, "descale_v": 0x100700000000, "sinks": 0x100900000000, "alibi_slopes": 0x101400000000, "tree_mask": 0x101500000000,
	"y_q": 0x100a00000000, "y_k": 0x100b00000000, "y_v": 0x100c00000000, "mean_k": 0x100d00000000, "k_cache": 0x100e00000000, "v_cache": 0x100f00000000,
	"lengths": 0x101000000000, "page_table": 0x101100000000, "cu_queries": 0x101200000000, "cu_keys": 0x101300000000, "q_fp16": 0x100000000000, "q_bf16": 0x100000000000, "arrived": workspaceAddress, "counters": workspaceAddress, "parts": workspaceAddress + 65536,
	"workspace": workspaceAddress + 65536 - 16, // of the quantiser
}

// setting is a line of the probe.
func setting(name string, value any) string { return fmt.Sprintf("set %s %v", name, value) }

// pointerIf is the line that sets a pointer, to NULL if it is absent.
func pointerIf(present bool, name, argument string) string {
	if !present {
		return setting(name, 0)
	}
	return setting(name, addressOf[argument])
}

// strides are the lines of the strides of a tensor.
func strides(name string, values ...int) []string {
	var lines []string
	for i, v := range values {
		lines = append(lines, setting(fmt.Sprintf("%s[%d]", name, i), v))
	}
	return lines
}

// asked has, for each declared kernel, the lines of the probe for a shape of its kernel.toml.
var asked = map[string]func(a spec.Axes, headDim int) []string{
	"decode": func(a spec.Axes, headDim int) []string {
		return []string{
			"function forward", "reset", setting("batch", a.Value("batch")), setting("heads", a.Value("kv_heads")*a.Value("group")), setting("kv_heads", a.Value("kv_heads")),
			setting("queries", a.Value("queries")), setting("keys", a.Value("keys")), setting("head_dim", headDim), setting("causal", a.Value("causal")),
			setting("window", fmt.Sprintf("%d,-1", a.Value("window")-1)), setting("out_dtype", 2+a.Value("bf16")), setting("page_size", a.Value("page_size")),
			setting("max_pages", (a.Value("keys")+a.Value("page_size")-1)/a.Value("page_size")), setting("pages", a.Value("pages")),
			pointerIf(a.Value("pages") > 0, "page_table", "page_table"), pointerIf(a.Value("lengths") > 0, "key_lengths", "lengths"),
			pointerIf(a.Value("sinks") > 0, "sinks", "sinks"), pointerIf(a.Value("lse") > 0, "lse", "lse"),
			setting("workspace", workspaceAddress), setting("workspace_bytes", 1<<30),
		}
	},
	"prefill": func(a spec.Axes, headDim int) []string { return optionLines(a, headDim, headDim) },
	"prefill16": func(a spec.Axes, columns int) []string {
		headDim, vHeadDim := headDimsOf(a, columns)
		scale := 1.5 * float64(a.Value("spread")) / math.Sqrt(float64(headDim)) / float64(max(a.Value("q_max"), 1)*max(a.Value("k_max"), 1))
		stride := 0
		if a.Value("alibi") == 2 {
			stride = a.Value("kv_heads") * a.Value("group")
		}
		return append(optionLines(a, headDim, vHeadDim), setting("v_head_dim", vHeadDim), setting("scale", float32(scale)), setting("softcap", a.Value("softcap")),
			pointerIf(a.Value("alibi") > 0, "alibi_slopes", "alibi_slopes"), setting("alibi_stride", stride), pointerIf(a.Value("tree") > 0, "tree_mask", "tree_mask"))
	},
	"quantize": func(a spec.Axes, _ int) []string {
		lines := []string{
			"function quantize", "reset", setting("batch", a.Value("batch")), setting("heads", a.Value("heads")), setting("kv_heads", a.Value("kv_heads")),
			setting("queries", a.Value("q_rows")), setting("keys", a.Value("kv_rows")), setting("head_dim", a.Value("dim")), setting("dtype", 2+a.Value("bf16")),
			setting("smooth_k", a.Value("smooth")), setting("hadamard", a.Value("hadamard")), pointerIf(a.Value("mean") > 0, "mean_k", "mean_k"),
		}
		for i, name := range []string{"q", "k", "v"} {
			row, heads, rows := a.Value("dim")+i*a.Value("pad"), a.Value("kv_heads"), a.Value("kv_rows")
			if name == "q" {
				heads, rows = a.Value("heads"), a.Value("q_rows")
			}
			lines = append(lines, rowStrides(name, row, heads, rows, a.Value("bshd"))...)
		}
		return lines
	},
	"append": func(a spec.Axes, _ int) []string {
		lines := []string{
			"function append", "reset", setting("batch", a.Value("batch")), setting("kv_heads", a.Value("heads")), setting("rows", a.Value("rows")),
			setting("head_dim", a.Value("dim")), setting("dtype", 2+a.Value("bf16")), setting("capacity", a.Value("page_size")), setting("page_size", a.Value("page_size")),
			setting("max_pages", a.Value("max_pages")), setting("pages", a.Value("batch")*a.Value("max_pages")), pointerIf(a.Value("paged") > 0, "page_table", "page_table"),
		}
		for i, name := range []string{"k", "v"} {
			lines = append(lines, rowStrides(name, a.Value("dim")+i*a.Value("pad"), a.Value("heads"), a.Value("rows"), a.Value("bshd"))...)
		}
		return lines
	},
}

// headDimsOf are the head dims of Q and K, and of V, of a shape in a prefill16 form of some columns.
func headDimsOf(a spec.Axes, columns int) (qk, v int) {
	return columns * a.Value("dim") / 1024 * 8, columns * a.Value("v_dim") / 1024 * 8
}

// optionLines are the lines for a shape of prefill and prefill16.
func optionLines(a spec.Axes, headDim, vHeadDim int) []string {
	heads, keyRows := a.Value("kv_heads")*a.Value("group"), a.Value("keys")
	if a.Value("pages") > 0 {
		keyRows = a.Value("page_size")
	}
	lines := []string{
		"function forward", "reset", setting("batch", a.Value("batch")), setting("heads", heads), setting("kv_heads", a.Value("kv_heads")),
		setting("queries", a.Value("queries")), setting("keys", a.Value("keys")), setting("head_dim", headDim), setting("causal", a.Value("causal")),
		setting("window", fmt.Sprintf("%d,%d", a.Value("left")-1, a.Value("right")-1)), setting("out_dtype", 2+a.Value("bf16")),
		setting("page_size", a.Value("page_size")), setting("max_pages", (a.Value("keys")+a.Value("page_size")-1)/a.Value("page_size")), setting("pages", a.Value("pages")),
		setting("total_queries", a.Value("queries")), setting("total_keys", a.Value("keys")),
		pointerIf(a.Value("packed") > 0, "cu_queries", "cu_queries"), pointerIf(a.Value("packed_keys") > 0, "cu_keys", "cu_keys"),
		pointerIf(a.Value("pages") > 0, "page_table", "page_table"), pointerIf(a.Value("lengths") > 0, "key_lengths", "lengths"),
		pointerIf(a.Value("sinks") > 0, "sinks", "sinks"), pointerIf(a.Value("lse") > 0, "lse", "lse"),
	}
	for name, columns := range map[string]int{"q": headDim, "o": vHeadDim} {
		lines = append(lines, rowStrides(name, columns, heads, a.Value("queries"), a.Value("rows_first"))...)
	}
	for name, columns := range map[string]int{"k": headDim, "v": vHeadDim} {
		lines = append(lines, rowStrides(name, columns, a.Value("kv_heads"), keyRows, a.Value("rows_first"))...)
	}
	return lines
}

// halfTensors are the lines for a form that takes queries in FP16 or BF16, and for its cache.
func halfTensors(c *form.Form, a spec.Axes) []string {
	knobs := c.Image.Record.Knobs
	if c.Kernel == form.Prefill16 {
		dtype := 2 + knobs["USE_BF16"]
		return []string{setting("dtype", dtype), setting("out_dtype", dtype), setting("descale_q", 0), setting("descale_k", 0), setting("descale_v", 0)}
	}
	if c.Image.Record.Kernel != "decode" || a.Value("q_bits") == 8 {
		return nil
	}
	lines := rowStrides("q", knobs[form.HeadDimKnob], a.Value("kv_heads")*a.Value("group"), a.Value("queries"), a.Value("q_rows_first"))
	lines = append(lines, setting("q_dtype", 2+a.Value("q_bf16")), setting("descale_q", 0))
	if c.Cache != array.E4M3 {
		lines = append(lines, setting("dtype", 2+a.Value("q_bf16")), setting("descale_k", 0), setting("descale_v", 0))
	}
	return lines
}

// rowStrides are the strides of a tensor whose rows are `row` elements apart, rows before heads if
// bshd is 1.
func rowStrides(name string, row, heads, rows, bshd int) []string {
	if bshd == 1 {
		return strides(name+"_stride", heads*rows*row, row, heads*row)
	}
	return strides(name+"_stride", heads*rows*row, rows*row, row)
}

// declaredLaunch is the line of the double for a job of a declared kernel on buffers at addresses.
func declaredLaunch(job device.Job, addressOf map[string]uint64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "launch 11 grid %d %d %d block %d %d %d shared %d cluster 0 0 0", job.Grid[0], job.Grid[1], job.Grid[2],
		job.Block[0], job.Block[1], job.Block[2], job.DynamicSharedBytes)
	if job.Cooperative {
		text.WriteString(" cooperative")
	}
	text.WriteString(" stream 0x77")
	for _, arg := range job.Args {
		value := arg.Scalar
		switch {
		case arg.TensorMap != nil:
			of, m := job.Args[arg.TensorMap.Arg].Name, *arg.TensorMap
			if of != "o" && m.Map.Type == "f16" {
				m.Map.Type = "bf16" // loads copy bits
			}
			value = packMap(&m, addressOf[of])
		case value == nil:
			value = binary.LittleEndian.AppendUint64(nil, addressOf[arg.Name])
		}
		fmt.Fprintf(&text, " %x", value)
	}
	return text.String()
}

// labJob is the launch of the lab for a companion and a shape.
func labJob(t *testing.T, folder fs.FS, c *form.Form, shape spec.Shape) device.Job {
	t.Helper()
	kernel := loadKernel(t, folder, c.Image.Record.Kernel)
	v, err := kernel.Variant(c.Image.Record.Variant)
	if err != nil {
		t.Fatal(err)
	}
	_, code := c.Code()
	p := declared.New(kernel, folder, kernel.Name)
	job, err := p.Job(problem.Build{Variant: v, Image: c.Image, Code: code}, p.Plain(shape, 1))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// loadedKernels are kernels by name: a kernel.toml takes some time to read.
var loadedKernels sync.Map

func loadKernel(t *testing.T, folder fs.FS, name string) *spec.Kernel {
	t.Helper()
	if kernel, known := loadedKernels.Load(name); known {
		return kernel.(*spec.Kernel)
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	loadedKernels.Store(name, kernel)
	return kernel
}

// evenBlocks is the number of blocks that attune_attention.c takes for units of as many tiles.
func evenBlocks(units, tiles int, c *form.Form, multiprocessors int) int {
	each := multiprocessors / units
	blocks, longest := each*units, 0
	if each > 0 {
		longest = (tiles + each - 1) / each
	} else {
		each = (units + multiprocessors - 1) / multiprocessors
		blocks, longest = (units+each-1)/each, each*tiles
	}
	if (longest*multiprocessors-units*tiles)*2*c.StepKeys*c.HeadDim*c.Cache.Bytes() > map[int]int{64: 96, 128: 448, 256: 512}[c.HeadDim]<<10*multiprocessors {
		return 0
	}
	return blocks
}

// isChosen reports whether the library computes a shape by a companion: of the decode forms by the one
// with the fewest units of a K/V head, of these by the one with the fewest rows, and of these by the
// first. prefill16 gets what has no other form, and the one with the fewest columns gets other head dims.
func isChosen(c *form.Form, all []*form.Form, s spec.Axes) bool {
	if c.Kernel == form.Prefill16 {
		if qk, v := headDimsOf(s, c.HeadDim); qk != c.HeadDim || v != c.HeadDim {
			return c.HeadDim == 64 || max(qk, v) > c.HeadDim/2
		}
		few := s.Value("queries")*s.Value("group") <= 128 && s.Value("queries") <= 16 && s.Value("packed") == 0 && s.Value("right") == 0 // decode
		return s.Value("softcap") > 0 || s.Value("alibi") > 0 || s.Value("tree") > 0 || !few && (s.Value("pages") > 0 || s.Value("packed") > s.Value("packed_keys"))
	}
	if c.Kernel != form.Decode {
		return true
	}
	rows, before := s.Value("group")*s.Value("queries"), true
	for _, other := range all {
		before = before && other != c
		if other.Kernel != form.Decode || other.HeadDim != c.HeadDim || other.Cache != c.Cache || other == c {
			continue
		}
		units, others := (rows+c.QueryRows-1)/c.QueryRows, (rows+other.QueryRows-1)/other.QueryRows
		if others < units || others == units && (other.QueryRows < c.QueryRows || other.QueryRows == c.QueryRows && before) {
			return false
		}
	}
	return true
}

// librarysShape is a shape with the axes that the library sets itself: the blocks of the grid, no
// copies of factors, Q in the type of a cache in 16 bits, and masks as it understands them: a window
// that no row reaches is none, and one without keys on the right is a causal mask.
func librarysShape(s spec.Shape, c *form.Form, multiprocessors int) spec.Axes {
	names, values := s.Axes()
	value := func(name string) *int {
		if i := slices.Index(names, name); i >= 0 {
			return &values[i]
		}
		return new(int)
	}
	*value("copies"), *value("blocks") = 1, multiprocessors
	if c.Kernel == form.Decode {
		units := *value("batch") * *value("kv_heads") * ((*value("group")**value("queries") + c.QueryRows - 1) / c.QueryRows)
		if c.Cache != array.E4M3 {
			*value("q_bits"), *value("q_bf16") = 16, 0
			if c.Cache == array.BF16 {
				*value("q_bf16") = 1
			}
		}
		*value("even") = evenBlocks(units, (*value("keys")+c.StepKeys-1)/c.StepKeys, c, multiprocessors)
	}
	if right := value("right"); slices.Contains(names, "right") {
		tiles := *value("batch") * *value("kv_heads") * *value("group") * ((*value("queries") + 127) / 128)
		*value("blocks") = min(multiprocessors, tiles)
		if *right == 1 {
			*value("causal") = 1
		}
		if *right == 1 || *right >= *value("queries") {
			*right = 0
		}
		if left := value("left"); *left >= *value("keys") {
			*left = 0
		}
	}
	var text []string
	for i, name := range names {
		text = append(text, fmt.Sprintf("%s=%d", name, values[i]))
	}
	return spec.Axes(strings.Join(text, ","))
}

// The library launches declared kernels as the lab does, for every shape of their kernel.toml that
// the lab runs on the simulator.
func TestDeclaredLaunchesMatchLab(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	for name, folder := range companionFolders {
		kernel := loadKernel(t, folder, name)
		shapes, err := kernel.Shapes(strings.Join(kernel.Run.SimShapes, ","))
		if err != nil {
			t.Fatal(err)
		}
		var problems [][]string
		var want []string
		for _, companion := range l.Companions {
			if companion.Image.Record.Kernel != name || companion.Target.Arch != l.Arch {
				continue
			}
			for _, s := range shapes {
				shape := librarysShape(s, companion, 132)
				if !isChosen(companion, l.Companions, shape) {
					continue
				}
				problems = append(problems, slices.Concat([]string{"context 0"}, asked[name](shape, companion.Image.Record.Knobs[form.HeadDimKnob]), halfTensors(companion, shape), []string{"call 0x77", "print"}))
				want = append(want, declaredLaunch(labJob(t, folder, companion, shape), addressOf))
			}
		}
		for i, got := range c.askEach(t, problems) {
			if got[0] != ok || got[len(got)-1] != want[i] {
				t.Errorf("%s, %q:\ngot  %s\n     %s\nwant %s", name, problems[i], got[0], got[len(got)-1], want[i])
			}
		}
		if len(want) < len(shapes) {
			t.Errorf("%s: %d launches of %d shapes", name, len(want), len(shapes))
		}
	}
}

// Few queries over K and V in 16 bits take one launch of decode with a workspace, and native without one
// where it applies.
func TestCachesOf16Bits(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	lines := []string{"context 0", "reset"}
	for _, s := range fewRows {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	lines = append(lines, "set descale_q 0", "set descale_k 0", "set descale_v 0")
	paged := []string{"set page_table 0x101100000000", "set page_size 16", "set max_pages 25", "set pages 30"}
	for _, test := range []struct {
		settings []string
		form     string
	}{
		{[]string{"set dtype 2", "set out_dtype 2"}, "decode_fp16 "},
		{[]string{"set dtype 3", "set out_dtype 2"}, "decode_bf16 "},
		{append([]string{"set dtype 3", "set out_dtype 3", "set sinks 0x100900000000", "set window 9,-1"}, paged...), "decode_bf16 "},
		{[]string{"set dtype 3", "set out_dtype 3", "set heads 128", "set kv_heads 8", "set queries 8"}, "decode_bf16_m128 "},
		{[]string{"set dtype 3", "set out_dtype 3", "set workspace 0", "set workspace_bytes 0"}, "native64_d128 "},
	} {
		got := c.ask(t, slices.Concat(lines, test.settings, []string{"form", "call 0x77", "print"})...)
		launches := len(slices.DeleteFunc(slices.Clone(got), func(line string) bool { return !strings.HasPrefix(line, "launch") }))
		if !strings.HasPrefix(got[0], test.form) || got[1] != ok || launches != 1 {
			t.Errorf("%q: %d launches: %.200q", test.settings, launches, got)
		}
	}
}

// fewRows are the settings of a problem for the decode kernel.
var fewRows = []string{"queries=2", "keys=300", "head_dim=128", "workspace=0x100800000000", "workspace_bytes=1073741824"}

func TestDecodeArguments(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	with := func(more ...string) []string { return slices.Concat(fewRows, more) }
	paged := with("page_table=0x101100000000", "page_size=64", "max_pages=5", "pages=9")
	pagedWith := func(more ...string) []string { return slices.Concat(paged, more) }
	tests := []argumentTest{
		{with(), ok},
		{paged, ok},
		{pagedWith("max_pages=4"), invalid + "keys is 300, more than max_pages, 4, times page_size, 64"},
		{pagedWith("page_size=40", "max_pages=99"), unsupported + "page_size is 40; the forms of this library take multiples of 16 keys"},
		{pagedWith("page_size=16", "max_pages=99"), ok},
		{pagedWith("page_size=48", "max_pages=99"), ok},
		{pagedWith("page_size=192"), ok},
		{pagedWith("page_size=0"), invalid + "page_size is 0; it must be from 1 to 16777216"},
		{pagedWith("pages=0"), invalid + "pages is 0; it must be from 1 to 16777216"},
		{pagedWith("max_pages=-1"), invalid + "max_pages is -1; it must be from 1 to 16777216"},
		{pagedWith("batch=1000", "max_pages=16777216"), invalid + "batch is 1000 and max_pages 16777216: the page table would have more than 2^31 elements"},
		{pagedWith("dtype=3", "descale_q=0", "descale_k=0", "descale_v=0"), ok},
		{pagedWith("dtype=3", "descale_q=0", "descale_k=0", "descale_v=0", "queries=17"), unsupported + "page_table is 0x101100000000; paged k and v must be in E4M3 or in the type of o, without smooth_k and hadamard"},
		{pagedWith("dtype=3", "out_dtype=3", "descale_q=0", "descale_k=0", "descale_v=0", "queries=17"), ok},
		{pagedWith("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0", "queries=3", "window=9,1"), ok},
		{pagedWith("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0", "queries=17", "hadamard=1"), unsupported + "page_table is 0x101100000000; paged k and v must be in E4M3"},
		{with("window=128,-1", "sinks=0x100900000000", "lse=0x100400000000", "out_dtype=3", "key_lengths=0x101000000000"), ok},
		{with("window=9,0"), ok}, // causal
		{with("k_stride[1]=128", "k_stride[2]=1024"), ok},
		{with("queries=3", "o_stride[1]=128", "o_stride[2]=1024"), ok},
		{with("queries=1", "o_stride[0]=1024", "o_stride[1]=128", "o_stride[2]=1024"), ok},
		{with("q_dtype=2"), invalid + "descale_q is 0x100500000000; it must be NULL for a tensor in FP16 or BF16"},
		{with("q_dtype=2", "descale_q=0", "hadamard=1"), ok},
		{with("q_dtype=2", "descale_q=0", "smooth_k=1"), invalid + "smooth_k is 1; it must be 0 for k in E4M3, which is not quantised"},
		{with("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0", "smooth_k=1"), ok},
		{with("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0", "smooth_k=1", "sinks=0x100900000000"), unsupported + "sinks is 0x100900000000; smooth_k shifts the scores of a row, and the sinks not"},
		{with("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0", "smooth_k=1", "lse=0x100400000000"), unsupported + "lse is 0x100400000000; with smooth_k it would be that of k without its mean"},
		{with("cu_keys=0x101200000000"), invalid + "cu_keys is 0x101200000000 and cu_queries NULL; keys are packed only beside queries"},
		// The counters of the workspace are those of 16380 K/V heads.
		{with("batch=2047", "key_lengths=0x101000000000"), ok},
		{with("batch=2048", "key_lengths=0x101000000000"), ok},
		{with("batch=2048"), ok},
		// Tensor maps have no limit of 2^31 elements.
		{with("batch=64", "keys=1000000"), ok},
		{with("batch=64", "keys=1000000", "queries=17"), unsupported + "batch is 64, kv_heads 8, keys 1000000 and head_dim 128: a tensor would have more than 2^31 elements"},
		// K and V count with their own heads.
		{with("batch=2", "heads=64", "keys=1000000", "queries=17"), ok},
		{with("batch=2048", "keys=65536"), unsupported + "batch is 2048, kv_heads 8, keys 65536 and head_dim 128: a tensor would have more than 2^31"},
		{with("workspace_bytes=65536"), tooSmall + "workspace_bytes is 65536; this problem needs 1163776"},
		// Without a workspace a problem without options has a dense form.
		{with("workspace=0", "workspace_bytes=0"), ok},
		{with("workspace=0", "workspace_bytes=0", "key_lengths=0x101000000000"), ok}, // prefill
		{with("workspace=0", "workspace_bytes=0", "batch=64", "keys=1000000"), tooSmall + "workspace_bytes is 0; this problem needs 1163776"},
		{with("workspace=0", "batch=64", "keys=1000000"), invalid + "workspace is NULL"},
	}
	tests = append(tests, pointerTests("page_table", 4, false, paged...)...)
	for _, name := range []string{"key_lengths", "sinks"} {
		tests = append(tests, pointerTests(name, 4, false, with()...)...)
	}
	tests = append(tests, pointerTests("workspace", 16, false, with()...)...)
	checkArguments(t, c, "forward", tests)
}

// Workspaces begin with the counters. A dense form needs none.
func TestWorkspaceBytes(t *testing.T) {
	t.Parallel()
	lines := []string{"workspace"}
	for _, s := range fewRows {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	lines = append(lines, "form", "workspace", "set workspace 0", "form", "workspace", "set window 4,-1", "form", "workspace", "set heads 0", "workspace",
		"function quantize", "workspace", "set smooth_k 1", "workspace", "set k 0", "set v 0", "set y_k 0", "set y_v 0", "set kv_heads -3", "workspace", "set queries 0", "workspace")
	got := shippedProbe(t).ask(t, lines...)
	const tiles = 3 * 8 * 4 // of 128 rows
	want := []string{
		"0 ", "decode ", "1163776 ", "stage7b+HEAD_DIM=128+TILE_M=64+KV_STAGES=3+USE_OVERLAP=0+EXP2_LINEAR_EIGHTHS=4+EXP2_SEGMENTS=2 ", "1163776 ", "prefill ", "1163776 ",
		"0 heads is 0; it must be from 1 to 16777216",
		fmt.Sprintf("%d ", 65536+4*tiles*8), fmt.Sprintf("%d ", 65536+4*tiles*8+4*3*64*tiles/3), fmt.Sprintf("%d ", 65536+4*tiles/3*8),
		"0 queries is 0; it must be from 1 to 16777216",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestQuantizeArguments(t *testing.T) {
	t.Parallel()
	tests := []argumentTest{
		{nil, ok},
		{[]string{"struct_size=8"}, invalid + "struct_size is 8; sizeof(attune_quantize_params) is 224 in the header of this library"},
		{[]string{"q=0", "y_q=0", "k=0", "v=0", "y_k=0", "y_v=0"}, invalid + "q, k and v are NULL; there is nothing to quantise"},
		{[]string{"q=0", "y_q=0", "descale_q=0", "heads=0", "queries=-7"}, ok},
		{[]string{"k=0", "v=0", "y_k=0", "y_v=0", "descale_k=0", "descale_v=0", "mean_k=0", "kv_heads=0", "keys=-7", "smooth_k=1"}, ok},
		{[]string{"mean_k=0"}, ok},
		{[]string{"flags=1", "q=0x12340"}, ok}, // trusted
		{[]string{"flags=4"}, invalid + "flags is 4; it must be 0 or ATTUNE_SDPA_TRUST_POINTERS"},
		{[]string{"dtype=1"}, unsupported + "dtype is ATTUNE_SDPA_E4M3, which no form of this library has"},
		{[]string{"dtype=5"}, invalid + "dtype is 5; it must be a value of attune_sdpa_dtype"},
		{[]string{"head_dim=72"}, ok},
		{[]string{"head_dim=20"}, unsupported + "head_dim is 20; the quantiser takes multiples of 8 up to 256"},
		{[]string{"head_dim=264"}, unsupported + "head_dim is 264; the quantiser takes multiples of 8 up to 256"},
		{[]string{"head_dim=72", "hadamard=1"}, unsupported + "hadamard is 1 and head_dim 72; the transform needs a power of two"},
		{[]string{"batch=100000", "queries=1000"}, unsupported + "batch is 100000, q 8 heads of 1000 queries and head_dim 64: the tensor would have more than 2^31 elements"},
		{[]string{"batch=100000", "queries=1", "keys=1000"}, unsupported + "batch is 100000, k 8 heads of 1000 keys and head_dim 64: "},
		{[]string{"q_stride[1]=64", "q_stride[2]=512"}, ok},
		{[]string{"q_stride[1]=64", "q_stride[2]=500"}, unsupported + "q_stride[2] is 500; it must be a multiple of 8"},
		{[]string{"k_stride[1]=32", "k_stride[2]=512"}, unsupported + "k_stride[1] is 32; rows may not overlap, so it must be at least head_dim, 64"},
		{[]string{"v_stride[1]=64"}, unsupported + "v_stride[2] is 0; rows may not overlap"},
		{[]string{"workspace_bytes=65536"}, tooSmall + "workspace_bytes is 65536; this problem needs 68608"},
		// The kernel multiplies tiles by 264 blocks in 32 bits.
		{[]string{"batch=1000000", "heads=16", "queries=1", "k=0", "v=0", "y_k=0", "y_v=0"}, ok},
		{[]string{"batch=1000000", "heads=17", "queries=1", "k=0", "v=0", "y_k=0", "y_v=0"}, unsupported + "batch is 1000000 with 17 heads of 1 queries and 1 of 0 keys: the quantiser would have 17000000 tiles, and it takes at most 16268814"},
	}
	for _, name := range []string{"batch", "heads", "kv_heads", "queries", "keys", "head_dim"} {
		tests = append(tests, argumentTest{[]string{name + "=0"}, invalid + name + " is 0; it must be from 1 to 16777216"})
	}
	for _, name := range []string{"q", "k", "v", "y_q", "y_k", "y_v", "workspace"} {
		tests = append(tests, pointerTests(name, 16, true)...)
	}
	for _, name := range []string{"descale_q", "descale_k", "descale_v"} {
		tests = append(tests, pointerTests(name, 4, true)...)
	}
	checkArguments(t, shippedProbe(t), "quantize", append(tests, pointerTests("mean_k", 4, false)...))
}

func TestAppendArguments(t *testing.T) {
	t.Parallel()
	paged := []string{"page_table=0x101100000000", "page_size=16", "max_pages=7", "pages=20", "capacity=0"}
	tests := []argumentTest{
		{nil, ok},
		{paged, ok},
		{[]string{"struct_size=8"}, invalid + "struct_size is 8; sizeof(attune_append_params) is 168 in the header of this library"},
		{[]string{"struct_size=160"}, invalid + "struct_size is 160; sizeof(attune_append_params) is 168 in the header of this library"},
		{[]string{"flags=2"}, invalid + "flags is 2; it must be 0 or ATTUNE_SDPA_TRUST_POINTERS"},
		{[]string{"capacity=0"}, invalid + "capacity is 0; it must be from 1 to 16777216"},
		{append(slices.Clone(paged), "pages=0"), invalid + "pages is 0; it must be from 1 to 16777216"},
		{append(slices.Clone(paged), "page_size=0"), invalid + "page_size is 0; it must be from 1 to 16777216"},
		{append(slices.Clone(paged), "max_pages=0"), invalid + "max_pages is 0; it must be from 1 to 16777216"},
		{append(slices.Clone(paged), "batch=1000", "max_pages=16777216"), invalid + "batch is 1000 and max_pages 16777216: the page table would have more than 2^31 elements"},
		{[]string{"dtype=1"}, unsupported + "dtype is ATTUNE_SDPA_E4M3, which no form"},
		{[]string{"head_dim=36"}, unsupported + "head_dim is 36; append takes multiples of 8"},
		{[]string{"batch=10000", "rows=10000"}, unsupported + "batch is 10000, k 8 heads of 10000 rows and head_dim 128: "},
		{[]string{"rows=2", "k_stride[0]=2048", "k_stride[1]=128", "k_stride[2]=1024"}, ok},
		{[]string{"rows=2", "v_stride[0]=2048", "v_stride[1]=128", "v_stride[2]=1028"}, unsupported + "v_stride[2] is 1028; it must be a multiple of 8"},
		{[]string{"k_stride[1]=128"}, unsupported + "k_stride[0] is 0; rows may not overlap"},
	}
	for _, name := range []string{"batch", "kv_heads", "rows", "head_dim"} {
		tests = append(tests, argumentTest{[]string{name + "=0"}, invalid + name + " is 0; it must be from 1 to 16777216"})
	}
	for _, name := range []string{"k", "v", "k_cache", "v_cache"} {
		tests = append(tests, pointerTests(name, 16, true)...)
	}
	for _, name := range []string{"descale_k", "descale_v", "lengths"} {
		tests = append(tests, pointerTests(name, 4, true)...)
	}
	checkArguments(t, shippedProbe(t), "append", append(tests, pointerTests("page_table", 4, false, paged...)...))
}

// parameters are the values of a launch of the double, as numbers where they have 8 bytes or less.
func parameters(t *testing.T, line string) []uint64 {
	t.Helper()
	_, text, found := strings.Cut(line, " stream 0x77 ")
	if !found {
		t.Fatalf("no launch: %q", line)
	}
	var all []uint64
	for field := range strings.FieldsSeq(text) {
		data, err := hex.DecodeString(field)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, binary.LittleEndian.Uint64(append(data, make([]byte, 8)...)))
	}
	return all
}

// quantiserOf is the companion that quantises the inputs of a forward call, its folder, and a shape of
// it: kernels/quantize/cast, or kernels/quantize/quantize if there is an option.
func quantiserOf(t *testing.T, l Library, queries, keys, smooth, hadamard int) (*form.Form, fs.FS, spec.Axes) {
	t.Helper()
	name, folder := "cast", kernels.Cast()
	shape := fmt.Sprintf("batch=2,heads=8,kv_heads=4,q_rows=%d,kv_rows=%d,dim=64,bf16=1,bshd=1,span=3,pad=0,copies=1", queries, keys)
	if smooth+hadamard > 0 {
		name, folder = "quantize", kernels.Quantize()
		shape = fmt.Sprintf("batch=2,heads=8,kv_heads=4,q_rows=%d,kv_rows=%d,dim=64,bf16=1,bshd=1,smooth=%d,hadamard=%d,span=3,copies=1,mean=0,pad=0", queries, keys, smooth, hadamard)
	}
	return companionOf(t, l, name), folder, spec.Axes(shape)
}

// FP16 and BF16 inputs take one launch of the quantiser, whose outputs lie in the workspace without
// overlap, and one of a form that reads them.
func TestQuantisedInputs(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	for _, test := range []struct {
		queries, keys, smooth, hadamard int
		cache                           bool // k and v are in E4M3
		form                            string
	}{
		{500, 300, 0, 0, false, "stage7b"},
		{500, 300, 1, 1, false, "stage7b"},
		{2, 300, 1, 0, false, "decode64"},
		{2, 300, 0, 1, true, "decode64"},
	} {
		lines := []string{
			"context 0", setting("batch", 2), setting("heads", 8), setting("kv_heads", 4), setting("queries", test.queries), setting("keys", test.keys), setting("q_dtype", 3),
			setting("dtype", 3), setting("smooth_k", test.smooth), setting("hadamard", test.hadamard), setting("descale_q", 0), setting("descale_k", 0), setting("descale_v", 0),
			setting("workspace", workspaceAddress),
		}
		lines = append(append(lines, rowStrides("q", 64, 8, test.queries, 1)...), rowStrides("k", 64, 4, test.keys, 1)...)
		lines = append(lines, rowStrides("v", 64, 4, test.keys, 1)...)
		if test.cache {
			lines = append(lines, setting("dtype", 1), setting("descale_k", addressOf["descale_k"]), setting("descale_v", addressOf["descale_v"]))
		}
		bytes := strings.Fields(c.ask(t, append(lines, "workspace")...)[0])[0]
		got := c.ask(t, append(lines, "form", "set workspace_bytes "+bytes, "call 0x77", "print")...)
		if !strings.HasPrefix(got[0], test.form) || got[1] != ok {
			t.Fatalf("%+v: %q", test, got)
		}
		size, err := strconv.ParseUint(bytes, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		launches := slices.DeleteFunc(got[2:], func(line string) bool { return !strings.HasPrefix(line, "launch") })
		if len(launches) != 2 {
			t.Fatalf("%+v: %q", test, got)
		}
		// Attention may start before the end of the cast, which the dense form waits for.
		cast := test.smooth+test.hadamard == 0
		if got := strings.Contains(launches[1], " dependent "); got != (cast && test.form == "stage7b") || strings.Contains(launches[0], " dependent ") {
			t.Errorf("%+v: %q", test, launches)
		}
		checkQuantisation(t, launches, size, test.smooth+test.hadamard > 0, test.cache, test.form == "decode64")
		if test.cache {
			continue
		}
		at := parameters(t, launches[0])
		places := maps.Clone(addressOf)
		for i, name := range []string{"y_q", "y_k", "y_v", "descale_q", "descale_k", "descale_v"} {
			places[name] = at[3+i]
		}
		quantiser, folder, shape := quantiserOf(t, l, test.queries, test.keys, test.smooth, test.hadamard)
		if want := declaredLaunch(labJob(t, folder, quantiser, shape), places); launches[0] != want {
			t.Errorf("%+v:\ngot  %s\nwant %s", test, launches[0], want)
		}
	}
}

// Queries in FP16 or BF16 beside a cache in E4M3 take one launch and the workspace of E4M3 queries. The
// Hadamard transform takes a quantiser.
func TestQueriesConvertedInDecode(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	lines := []string{"context 0"}
	for _, s := range fewRows {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	codes := c.ask(t, append(slices.Clone(lines), "workspace")...)[0]
	lines = append(append(lines, "set descale_q 0"), rowStrides("q", 128, 8, 2, 1)...)
	for _, test := range []struct {
		settings []string
		form     string
		launches int
	}{
		{[]string{"set q_dtype 2"}, "decode ", 1},
		{[]string{"set q_dtype 3"}, "decode ", 1},
		{[]string{"set q_dtype 3", "set key_lengths 0x101000000000", "set sinks 0x100900000000", "set window 9,-1"}, "decode ", 1},
		{[]string{"set q_dtype 3", "set page_table 0x101100000000", "set page_size 64", "set max_pages 5", "set pages 9"}, "decode ", 1},
		{[]string{"set q_dtype 3", "set page_table 0x101100000000", "set page_size 192", "set max_pages 5", "set pages 9"}, "decode ", 1},
		{[]string{"set q_dtype 3", "set page_table 0x101100000000", "set page_size 16", "set max_pages 25", "set pages 30"}, "decode ", 1},
		{[]string{"set q_dtype 3", "set hadamard 1"}, "decode ", 2},
		{[]string{"set dtype 3", "set hadamard 1", "set descale_k 0", "set descale_v 0"}, "decode ", 2},
	} {
		got := c.ask(t, slices.Concat(lines, test.settings, []string{"form", "workspace", "call 0x77", "print"})...)
		launches := len(slices.DeleteFunc(slices.Clone(got), func(line string) bool { return !strings.HasPrefix(line, "launch") }))
		if got[0] != test.form || (got[1] == codes) != (test.launches == 1) || got[2] != ok || launches != test.launches {
			t.Errorf("%q: %d launches, workspace %s, that of E4M3 queries %s: %.100q", test.settings, launches, got[1], codes, got)
		}
	}
}

// lines are those of the probe for the shape.
func (s nativeSize) lines(rowsFirst int) []string {
	lines := []string{
		"reset", setting("batch", s.batch), "set heads 4", "set kv_heads 2", setting("queries", s.queries), setting("keys", s.keys),
		setting("head_dim", s.headDim), setting("causal", s.causal), fmt.Sprintf("set scale %.9g", 1.5/math.Sqrt(float64(s.headDim))),
		[]string{"set lse 0", "set lse 0x100400000000"}[s.lse], setting("dtype", s.dtype), setting("out_dtype", s.dtype), "set descale_q 0", "set descale_k 0", "set descale_v 0",
	}
	for name, heads := range map[string]int{"q": 4, "o": 4} {
		lines = append(lines, rowStrides(name, s.headDim, heads, s.queries, rowsFirst)...)
	}
	for _, name := range []string{"k", "v"} {
		lines = append(lines, rowStrides(name, s.headDim, 2, s.keys, rowsFirst)...)
	}
	return lines
}

// Problems in 16 bits take one launch of kernels/attention/native or pingpong, which has counters for
// causal tiles, if there is a workspace. What they do not have, and long problems, take a quantiser.
func TestNativeLaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	var problems [][]string
	var stages, sizes, launches []string
	for size, stage := range nativeStages {
		places := maps.Clone(addressOf)
		places[map[int]string{fp16Code: "o_bf16", bf16Code: "o"}[size.dtype]] = 0
		if size.lse == 0 {
			places["lse"] = 0
		}
		bytes := "0 "
		if places["counters"] = 0; size.isPingpong() && size.causal == 1 {
			bytes, places["counters"] = "65536 ", workspaceAddress
		}
		for rowsFirst := range 2 {
			workspace := uint64(workspaceAddress)
			if rowsFirst == 1 { // without counters
				workspace, places["counters"] = 0, 0
			}
			problems = append(problems, slices.Concat([]string{"context 0"}, size.lines(rowsFirst), []string{setting("workspace", workspace), setting("workspace_bytes", 65536), "form", "workspace", "call 0x77", "print"}))
			job := labJob(t, size.folder(), stageOf(t, l, stage), size.axes(rowsFirst))
			stages, sizes = append(stages, stage), append(sizes, bytes)
			launches = append(launches, declaredLaunch(job, places))
		}
	}
	for i, got := range c.askEach(t, problems) {
		if got[0] != stages[i]+" " || got[1] != sizes[i] || got[2] != ok || got[len(got)-1] != launches[i] {
			t.Errorf("got  %.100q\n     %s\nwant %s", got, got[len(got)-1], launches[i])
		}
	}
	for _, change := range []string{"keys 4097", "queries 2", "hadamard 1", "smooth_k 1", "q_dtype 2", "out_dtype 2", "sinks 0x100900000000", "window 9,-1"} {
		lines := slices.Concat([]string{"context 0"}, nativeSize{3, 300, 200, 64, 1, bf16Code, 0}.lines(0), []string{"set workspace 0x100800000000"})
		for _, name := range []string{"q", "k", "v", "o"} {
			lines = append(lines, strides(name+"_stride", 0, 0, 0)...)
		}
		got := c.ask(t, append(lines, "set "+change, "form")...)[0]
		if strings.HasPrefix(got, "native") || strings.HasPrefix(got, "pingpong") || got == " " {
			t.Errorf("%s: the form is %q", change, got)
		}
	}
}

// mixedAxes is a shape of kernels/attention/mixed with the scale that a probe sets: the types of Q and of O.
const mixedAxes = "batch=3,kv_heads=2,group=2,queries=800,keys=3200,blocks=132,causal=0,lse=0,q_fp16=%d,o_bf16=%d,q_max=1,k_max=1,v_max=1"

// mixedLines are the lines of the probe for mixedAxes. K and V are in E4M3.
func mixedLines(qFP16, oBF16 int) []string {
	return []string{
		"reset", "set batch 3", "set heads 4", "set kv_heads 2", "set queries 800", "set keys 3200", "set head_dim 64", "set scale 0.1875",
		"set dtype 1", setting("q_dtype", 3-qFP16), setting("out_dtype", 2+oBF16), "set descale_q 0",
	}
}

// mixedJob is the lab's launch for mixedAxes. Maps of the library promote loads to 256 bytes, as those
// of dense forms.
func mixedJob(t *testing.T, l Library, qFP16, oBF16 int) device.Job {
	t.Helper()
	job := labJob(t, kernels.Mixed(), companionOf(t, l, "mixed"), spec.Axes(fmt.Sprintf(mixedAxes, qFP16, oBF16)))
	for i := range job.Args {
		if m := job.Args[i].TensorMap; m != nil {
			m.L2Promotion = "256B"
		}
	}
	return job
}

// With Q in BF16 or FP16 and K and V in E4M3 long problems take one launch of kernels/attention/mixed. A cast of
// K and V alone precedes it if these are in 16 bits too. What it does not have takes another form.
func TestMixedLaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	for _, types := range [][2]int{{0, 1}, {1, 0}, {0, 0}, {1, 1}} {
		places := maps.Clone(addressOf)
		places[[]string{"o_bf16", "o"}[types[1]]] = 0
		places["lse"] = 0
		got := c.ask(t, slices.Concat([]string{"context 0"}, mixedLines(types[0], types[1]), []string{"form", "workspace", "call 0x77", "print"})...)
		if want := declaredLaunch(mixedJob(t, l, types[0], types[1]), places); got[0] != "mixed " || got[1] != "0 " || got[2] != ok || got[len(got)-1] != want {
			t.Errorf("got  %.100q\n     %s\nwant %s", got, got[len(got)-1], want)
		}
	}

	half := slices.Concat([]string{"context 0"}, mixedLines(0, 1), []string{"set dtype 3", "set descale_k 0", "set descale_v 0", setting("workspace", workspaceAddress)}, rowStrides("k", 64, 2, 3200, 1))
	bytes := strings.Fields(c.ask(t, append(half, "workspace")...)[0])[0]
	got := c.ask(t, append(half, "form", "set workspace_bytes "+bytes, "call 0x77", "print")...)
	launches := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return !strings.HasPrefix(line, "launch") })
	if got[0] != "mixed " || len(launches) != 2 || !strings.Contains(launches[1], " dependent ") {
		t.Fatalf("got %.100q", got)
	}
	z, form := parameters(t, launches[0]), parameters(t, launches[1])
	if z[0] != 0 || z[3] != 0 || z[6] != 0 || z[22] != 0 || z[23] != 3200 || z[15] != 2*64 {
		t.Errorf("the cast reads Q, or not the rows of K: %#x", z)
	}
	if form[0] != addressOf["q"] || form[1] != z[4] || form[2] != z[5] || form[6] != z[7] || form[7] != z[8] {
		t.Errorf("the form reads %#x, the cast writes %#x", form, z)
	}
	const codes = 3 * 2 * 3200 * 64
	if size, err := strconv.Atoi(bytes); err != nil || size < 65536+2*codes || size > 65536+2*codes+2048 {
		t.Errorf("the workspace has %s bytes", bytes)
	}

	for _, change := range []string{"queries 2", "queries 600", "causal 1", "hadamard 1", "lse 0x100400000000", "sinks 0x100900000000", "window 9,-1", "head_dim 128", "q_dtype 1", "o_stride 1"} {
		lines := slices.Concat([]string{"context 0"}, mixedLines(0, 1), []string{"set workspace 0x100800000000"})
		switch change {
		case "q_dtype 1":
			lines = append(lines, setting("descale_q", addressOf["descale_q"]), "set "+change)
		case "o_stride 1":
			lines = append(lines, rowStrides("o", 64, 4, 800, 1)...)
		default:
			lines = append(lines, "set "+change)
		}
		if got := c.ask(t, append(lines, "form")...); strings.HasPrefix(got[0], "mixed") || got[0] == " " {
			t.Errorf("%s: the form is %q", change, got[0])
		}
	}
}

// A caller that knows its pointers saves the questions to the driver. NULL and wrong alignment are
// found all the same.
func TestTrustedPointers(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	for _, function := range []string{"forward", "append"} {
		got := c.ask(t, "context 0", "function "+function, "set flags 1", "fail cuPointerGetAttributes 999 0", "call", "set flags 0", "call")
		if got[0] != ok || !strings.HasPrefix(got[1], failed+"cuPointerGetAttributes failed") {
			t.Errorf("%s: got %q", function, got)
		}
	}
	if got := c.ask(t, "context 0", "set flags 2", "call"); got[0] != invalid+"flags is 2; it must be 0 or ATTUNE_SDPA_TRUST_POINTERS" {
		t.Errorf("got %q", got)
	}
	if got := c.ask(t, "context 0", "set flags 1", "set q 0", "call", "set q 0x100000000001", "call"); !strings.HasPrefix(got[0], invalid+"q is NULL") || !strings.Contains(got[1], "q is 0x100000000001") {
		t.Errorf("got %q", got)
	}
}

// checkQuantisation checks that the outputs of a quantiser are apart from each other and from the
// counters, and that the form of the second launch reads them.
func checkQuantisation(t *testing.T, launches []string, size uint64, options, cache, decode bool) {
	t.Helper()
	z, form := parameters(t, launches[0]), parameters(t, launches[1])
	queries, keys, counters := z[22], z[23], z[9] // of kernels/quantize/cast
	wantCounters := uint64(workspaceAddress)
	if options {
		queries, keys, counters = z[23], z[24], z[10]
		wantCounters += 65520
	}
	type span struct{ start, end uint64 }
	var spans []span
	add := func(start, bytes uint64) {
		if bytes > 0 {
			spans = append(spans, span{start, start + bytes})
		}
	}
	add(z[3], 2*8*queries*64)
	add(z[4], 2*4*keys*64)
	add(z[5], 2*4*keys*64)
	add(z[6], 2*8*4)
	if !cache {
		add(z[7], 2*4*4)
		add(z[8], 2*4*4)
	}
	add(workspaceAddress, 65536)
	descales := []uint64{4, 5, 6} // their places among the parameters of a dense form
	if decode {
		descales = []uint64{6, 7, 8}
		add(form[12], 2*132*8*66*4)
		if form[13] != workspaceAddress {
			t.Errorf("the counters are at %#x", form[13])
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i, s := range spans {
		if i > 0 && s.start < spans[i-1].end || s.start%256 != 0 || s.end > workspaceAddress+size || s.start < workspaceAddress {
			t.Errorf("the buffer at %#x overlaps %#x, or is outside of the workspace of %d bytes", s.start, spans[max(0, i-1)].end, size)
		}
	}
	if counters != wantCounters || form[0] != z[3] || form[descales[0]] != z[6] {
		t.Errorf("the form reads %#x, the quantiser writes %#x", form, z)
	}
	wantK, wantDescale := z[4], z[7]
	if cache {
		wantK, wantDescale = addressOf["k"], addressOf["descale_k"]
		if keys != 0 || z[1] != 0 || z[2] != 0 {
			t.Errorf("the quantiser reads k and v: %#x", z)
		}
	}
	if form[1] != wantK || form[descales[1]] != wantDescale {
		t.Errorf("the form reads k at %#x and its factors at %#x, want %#x, %#x", form[1], form[descales[1]], wantK, wantDescale)
	}
}

// The grid of the quantiser is what fits on the device, which is asked once per context.
func TestResidentBlocks(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	const large = "set queries 65536"
	got := c.ask(t, "context 0", "function quantize", large, "room 1", "call 0x77", "room 2", "call 0x77", "print")
	if got[0] != ok || got[3] != "occupancy 11" || !strings.HasPrefix(got[4], "launch 11 grid 132 1 1 ") || !strings.HasPrefix(got[5], "launch 11 grid 132 1 1 ") {
		t.Errorf("got %.80q", got)
	}
	got = c.ask(t, "context 0", "function quantize", large, "call", "print")
	if !strings.HasPrefix(got[3], "launch 11 grid 264 1 1 ") {
		t.Errorf("got %.80q", got)
	}
	got = c.ask(t, "context 0", "function quantize", "room 0", "call", "room 1", "call")
	if got[0] != unsupported+"a multiprocessor of device 0 has no room for a block of quantize" || got[1] != ok {
		t.Errorf("got %q", got)
	}
}

// A failure of the driver in either launch is reported, and the next call works.
func TestDriverFailuresOfCompanions(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	half := []string{"context 0"}
	for _, s := range append(slices.Clone(fewRows), "dtype=3", "hadamard=1", "descale_q=0", "descale_k=0", "descale_v=0") {
		half = append(half, "set "+strings.Replace(s, "=", " ", 1))
	}
	for name, calls := range map[string]int{
		"cuPointerGetAttributes": 5, "cuModuleLoadDataEx": 2, "cuModuleGetFunction": 2, "cuFuncSetAttribute": 2, "cuOccupancyMaxActiveBlocksPerMultiprocessor": 1,
		"cuTensorMapEncodeTiled": 2, "cuLaunchKernelEx": 2,
	} {
		for after := range calls {
			got := c.ask(t, append(slices.Clone(half), fmt.Sprintf("fail %s 999 %d", name, after), "call", "call")...)
			if !strings.HasPrefix(got[0], failed+name+" failed with CUDA_ERROR_OF_THE_TEST (999, as requested)") || got[1] != ok {
				t.Errorf("%s, call %d: %q", name, after, got)
			}
		}
	}
	for after := range 3 { // the maps of the prefill kernel
		got := c.ask(t, "context 0", "set window 9,-1", fmt.Sprintf("fail cuTensorMapEncodeTiled 999 %d", after), "call", "call")
		if !strings.HasPrefix(got[0], failed+"cuTensorMapEncodeTiled failed") || got[1] != ok {
			t.Errorf("call %d: %q", after, got)
		}
	}
	for _, function := range []string{"quantize", "append"} {
		got := c.ask(t, "context 0", "function "+function, "fail cuCtxGetCurrent 999", "call", "fail cuModuleLoadDataEx 999", "call", "fail cuLaunchKernelEx 999", "call", "call", "context -1", "call")
		for i, want := range []string{failed + "cuCtxGetCurrent failed", failed + "cuModuleLoadDataEx failed", failed + "cuLaunchKernelEx failed", ok, invalid + "no CUDA context is current"} {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: got %q, want %q", function, got[i], want)
			}
		}
	}
}

// packed are the settings of packed sequences.
var packed = []string{"batch=3", "total_queries=900", "total_keys=1000", "cu_queries=0x101200000000", "cu_keys=0x101300000000"}

func TestPackedArguments(t *testing.T) {
	t.Parallel()
	with := func(more ...string) []string { return slices.Concat(packed, more) }
	half := with("dtype=3", "descale_q=0", "descale_k=0", "descale_v=0", "workspace=0x100800000000", "workspace_bytes=1073741824")
	tests := []argumentTest{
		{with(), ok},
		{half, ok},
		{with("total_queries=0"), invalid + "total_queries is 0; it must be from 1 to 16777216"},
		{with("total_keys=-1"), invalid + "total_keys is -1; it must be from 1 to 16777216"},
		{with("total_queries=16777216"), unsupported + "batch is 3, heads 8, total_queries 16777216 and head_dim 64: a tensor would have more than 2^31 elements"},
		{with("total_keys=16777216"), unsupported + "batch is 3, kv_heads 8, total_keys 16777216 and head_dim 64: a tensor would have more than 2^31 elements"},
		{with("cu_queries=0"), invalid + "cu_keys is 0x101300000000 and cu_queries NULL; keys are packed only beside queries"},
		{with("cu_keys=0"), ok}, // padded keys
		{with("key_lengths=0x101000000000"), ok},
		{with("cu_keys=0", "page_table=0x101100000000", "page_size=64", "max_pages=8", "pages=9"), ok},
		{with("page_table=0x101100000000", "page_size=64", "max_pages=8", "pages=9"), invalid + "cu_keys is 0x101300000000 and page_table 0x101100000000; packed keys have no pages"},
		{append(slices.Clone(half), "cu_keys=0"), unsupported + "cu_keys is NULL; beside packed queries, k and v that are not packed must be in E4M3 or in the type of o, without smooth_k and hadamard"},
		{append(slices.Clone(half), "cu_keys=0", "out_dtype=3"), ok},
		{append(slices.Clone(half), "cu_keys=0", "dtype=1", "q_dtype=3", "descale_k=0x100600000000", "descale_v=0x100700000000"), ok},
		{with("queries=4", "total_queries=12"), ok},
		{append(slices.Clone(half), "cu_queries=0", "cu_keys=0", "hadamard=1", "batch=1000000", "kv_heads=8", "queries=1", "keys=1"), unsupported + "batch is 1000000 with 8 heads of 1 queries and 8 of 1 keys: the quantiser would have 24000000 tiles"},
		// Strides of the batch are not used.
		{with("q_stride[0]=1", "q_stride[1]=64", "q_stride[2]=512"), ok},
		{with("batch=16777216", "queries=16777216", "total_queries=900"), unsupported + "batch is 16777216, heads 8 and queries 16777216: there would be more than 2^31 tiles of 128 queries"},
	}
	for _, name := range []string{"cu_queries", "cu_keys"} {
		tests = append(tests, pointerTests(name, 4, false, with()...)...)
	}
	checkArguments(t, shippedProbe(t), "forward", tests)
}

// Packed sequences in BF16 are quantised as one batch entry, whose factors are written for each
// sequence. The prefill kernel reads the codes by their strides.
func TestQuantisedPackedInputs(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	lines := []string{"context 0"}
	for _, s := range append(slices.Clone(packed), "dtype=3", "descale_q=0", "descale_k=0", "descale_v=0", "kv_heads=2", "workspace=0x100800000000", "workspace_bytes=1073741824") {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	got := c.ask(t, append(lines, "form", "call 0x77", "print")...)
	launches := slices.DeleteFunc(got[2:], func(line string) bool { return !strings.HasPrefix(line, "launch") })
	if got[0] != "prefill64 " || got[1] != ok || len(launches) != 2 {
		t.Fatalf("got %q", got)
	}
	z, form := parameters(t, launches[0]), parameters(t, launches[1])
	for what, pair := range map[string][2][]uint64{
		"strides of the inputs":      {z[10:19], {900 * 512, 64, 512, 1000 * 128, 64, 128, 1000 * 128, 64, 128}},
		"sizes of the quantiser":     {z[19:], {1, 8, 2, 900, 1000, 64, 1, 3}},
		"codes and factors":          {{form[0], form[1], form[2], form[6], form[7], form[8]}, z[3:9]},
		"sequences":                  {form[10:14], {addressOf["cu_queries"], addressOf["cu_keys"], 0, 0}},
		"sizes of the attention":     {form[14:19], {3, 2, 4, 512, 512}},
		"strides of Q, O and lse":    {form[25:33], {0, 900 * 64, 64, 0, 64, 512, 0, 900}},
		"room for copies of factors": {{z[8] - z[7], min(256, z[4]-z[6])}, {256, 256}},
	} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s: got %v, want %v", what, pair[0], pair[1])
		}
	}
}

// A library without companions says which kernel or which option it lacks.
func TestMissingCompanions(t *testing.T) {
	t.Parallel()
	needGCC(t)
	l := syntheticLibrary(t)
	for i := range l.Images {
		l.Images[i][BF16], l.Images[i][LSE] = nil, nil
	}
	c, err := compileLibrary("alone", l)
	if err != nil {
		t.Fatal(err)
	}
	checkArguments(t, c, "quantize", []argumentTest{{nil, unsupported + "this library was exported without the kernel quantize"}})
	checkArguments(t, c, "append", []argumentTest{{nil, unsupported + "this library was exported without the kernel append"}})
	with := func(more ...string) []string { return append([]string{"queries=2"}, more...) }
	checkArguments(t, c, "forward", []argumentTest{
		{with(), ok},
		{with("key_lengths=0x101000000000"), unsupported + "key_lengths is 0x101000000000; no form of this library has lengths for such sizes, so it must be NULL"},
		{with("page_table=0x101100000000", "page_size=64", "max_pages=8", "pages=9"), unsupported + "page_table is 0x101100000000; no form of this library has pages"},
		{slices.Concat(packed, with("queries=2")), unsupported + "cu_queries is 0x101200000000; no form of this library has packed sequences"},
		{with("sinks=0x100400000000"), unsupported + "sinks is 0x100400000000; no form of this library has sinks for such sizes, so it must be NULL"},
		{with("window=128,-1"), unsupported + "window_left is 128; no form of this library has it for such sizes, and -1 means no limit"},
		{[]string{"window=-1,10"}, unsupported + "window_right is 10; no form of this library has it"},
		{[]string{"o_stride[1]=64", "o_stride[2]=512"}, unsupported + "o_stride is {0, 64, 512}; the forms of this library for such sizes take contiguous tensors"},
		{[]string{"v_stride[1]=32768", "v_stride[2]=128"}, unsupported + "v_stride is {0, 32768, 128}; "},
		{with("keys=16777216"), unsupported + "batch is 1, kv_heads 8, keys 16777216 and head_dim 64: a tensor would have more than 2^31 elements"},
		{with("lse=0x100400000000"), unsupported + "lse is 0x100400000000; this library was exported without forms that write it, so it must be NULL"},
		{with("out_dtype=3"), unsupported + "out_dtype is ATTUNE_SDPA_BF16; this library was exported with FP16 outputs only"},
		{with("dtype=2", "descale_q=0", "descale_k=0", "descale_v=0"), unsupported + "dtype is 2; this library was exported without the kernel quantize, so it must be ATTUNE_SDPA_E4M3"},
		{with("q_dtype=3", "descale_q=0"), unsupported + "q_dtype is 3; this library was exported without the kernel quantize, so it must be ATTUNE_SDPA_E4M3"},
	})
}
