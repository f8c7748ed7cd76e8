package form

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"attune/internal/array"
	"attune/internal/spec"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// Kernel is the kind of a form: its kernel, or Dense for variants of the attention kernel.
type Kernel string

// HeadDimKnob is the knob that all attention kernels are built for: the head dim of a shape must equal it.
const HeadDimKnob = "HEAD_DIM"

// The kernels.
const (
	DenseKernel Kernel = "dense" // contiguous tensors without options: the variants of a selection
	Decode      Kernel = "decode"
	Prefill     Kernel = "prefill"
	Native      Kernel = "native"
	Pingpong    Kernel = "pingpong"
	Prefill16   Kernel = "prefill16"
	Mixed       Kernel = "mixed"
	Warp        Kernel = "warp"  // of all GPUs but those that the others are for
	Warp8       Kernel = "warp8" // of the same GPUs, with products of 8 bits
	Cast        Kernel = "cast"
	Quantize    Kernel = "quantize"
	Quantize8   Kernel = "quantize8" // for warp8
	Append      Kernel = "append"
)

// knobsOf are the declared kernels, with the knobs that their launches depend on.
var knobsOf = map[Kernel][]string{
	Decode:    {HeadDimKnob, "ROWS", "TILE_N"},
	Prefill:   {HeadDimKnob, "TILE_M"},
	Native:    {HeadDimKnob, "TILE_M", "TILE_N", "USE_BF16", exponentialsKnob},
	Pingpong:  {HeadDimKnob, "TILE_M", "TILE_N", "USE_BF16", exponentialsKnob},
	Prefill16: {HeadDimKnob, "TILE_M", "USE_BF16"},
	Mixed:     {HeadDimKnob, "TILE_M", "TILE_N"},
	Warp:      {HeadDimKnob, "TILE_M", "TILE_N", "USE_BF16", "RESIDENT_BLOCKS"},
	Warp8:     {HeadDimKnob, "TILE_M", "TILE_N", "USE_BF16", "USE_E4M3_QK", "USE_E4M3_PV", "RESIDENT_BLOCKS"},
	Cast:      {"THREADS", "CHUNKS"},
	Quantize:  {"THREADS", "CHUNKS", "BLOCKS"},
	Quantize8: {"THREADS", "BLOCKS", "BLOCKS_PER_SM", "USE_V"},
	Append:    {"THREADS"},
}

// exponentialsKnob is how many of eight exponentials are approximated.
const exponentialsKnob = "EXP2_LINEAR_EIGHTHS"

// Form is a variant of a kernel with its launch. Numbers that a kernel does not have are 0.
type Form struct {
	Kernel Kernel
	Folder fs.FS            // of the kernel; nil for a form of an image
	Target toolchain.Target // that its image is built for
	Image  *toolchain.Image // nil until it is built

	Arguments []Argument // of the entry function, in order

	HeadDim     int // 0 for any
	Threads     int // per block
	SharedBytes int // dynamic, per block
	Cluster     int // blocks of a cluster; 0 for none
	Cooperative bool
	// BlocksPerMultiprocessor is the maximum of blocks on a multiprocessor. Dense forms have 0 for one
	// block per tile; else they are persistent.
	BlocksPerMultiprocessor int

	QueryRows     int         // per block
	StepKeys      int         // of a step of a native, pingpong, mixed, prefill, decode, warp or warp8 form
	Cache         array.DType // decode: of K and V; warp: E4M3 if it is not that of Q; warp8: E4M3 if Q and K are
	BF16          bool        // native, pingpong, prefill16 and warp: tensors are BF16, else FP16; warp8: O is
	LinearEighths int         // native and pingpong: exponentials of every eight that are approximated
	Chunks        int         // of a quantiser: 16-byte chunks of a thread in a tile
	MaxBlocks     int         // of a quantiser: blocks of its grid
	HasOptions    bool        // warp: it computes problems with options, and head dims below its own
	PacksHeads    bool        // warp: a tile has rows of all query heads of a K/V head
	Splits        bool        // warp: several blocks may divide the keys of a tile
	E4M3V         bool        // warp8: V is E4M3, else of 16 bits; quantize8: V becomes E4M3
}

// Argument is an argument of an entry function: a value of the problem, or a tensor map.
type Argument struct {
	Name string
	Map  *Map // nil for a value
}

// Map is a tensor map of q, k, v or o. Its box covers rows of one head.
type Map struct {
	Tensor       int // 0 q, 1 k, 2 v, 3 o
	ElementBytes int
	// Rank is 4 for columns, rows, heads, batches (or pages), with any strides. It is 3 for contiguous
	// tensors, whose heads of all batches are one dimension.
	Rank          int
	Columns, Rows int // of the box
	PagedRows     int // Rows where k and v are paged; boxes of small pages have fewer
	SwizzleBytes  int // 0, 32, 64 or 128
}

// Tensors are the names of the tensors that maps describe.
var Tensors = []string{"q", "k", "v", "o"}

// MaxMaps is the number of tensor maps that a form may have.
const MaxMaps = 4

// PageUnit divides the keys of a page, so that a page holds whole boxes.
const PageUnit = 16

// isKV reports whether the map is one of k or v, which may be pages.
func (m *Map) isKV() bool { return Tensors[m.Tensor] == "k" || Tensors[m.Tensor] == "v" }

// pageBox are the rows of the box where a page of k and v has some keys: a power of two that divides
// them.
func (m *Map) pageBox(keys int) int { return min(m.PagedRows, keys&-keys) }

// Variant is the name of the form.
func (f *Form) Variant() string { return f.Target.Variant }

// Waits reports whether the form waits for the launch before, where it first reads its inputs, so
// that it may be launched before the end of that.
func (f *Form) Waits() bool { return bytes.Contains(f.Image.PTX, []byte("griddepcontrol.wait")) }

// Maps are the tensor maps of the form, in the order of its arguments.
func (f *Form) Maps() []*Map {
	var maps []*Map
	for _, a := range f.Arguments {
		if a.Map != nil {
			maps = append(maps, a.Map)
		}
	}
	return maps
}

// Target is the build of a variant of a kernel for an architecture.
func Target(kernel *spec.Kernel, v spec.Variant, arch string) toolchain.Target {
	knobs := map[string]int{}
	for _, s := range v.Values() {
		knobs[s.Knob] = s.Value
	}
	t := toolchain.Target{Kernel: kernel.Name, Variant: v.String(), Source: v.Stage().Source, Arch: arch, Knobs: knobs, Contract: true}
	if d := kernel.Declared; d != nil {
		t.Entry, t.Flags, t.FlagsAt, t.Contract = d.Entry, d.Flags, d.FlagsAt, false
	}
	return t
}

// Dense is the form of an image of the attention kernel: what its launch contract says.
func Dense(image *toolchain.Image) *Form {
	r := image.Record
	contract, target := r.Launch, toolchain.Target{Kernel: r.Kernel, Entry: r.Entry, Variant: r.Variant, Source: r.Source, Arch: r.Arch, Knobs: r.Knobs, Contract: true}
	f := &Form{
		Kernel: DenseKernel, Target: target, Image: image, HeadDim: target.Knobs[HeadDimKnob],
		Threads: contract.Threads, SharedBytes: contract.DynamicSharedBytes, Cluster: contract.Cluster,
		BlocksPerMultiprocessor: contract.BlocksPerMultiprocessor, QueryRows: contract.QueryRows,
	}
	names := []string{"q", "k", "v", "output"}
	if contract.LSE != "" {
		names = append(names, "lse")
	}
	names = append(names, "descale_q", "descale_k", "descale_v", "heads", "group", "queries", "keys", "causal", "softmax_scale")
	for _, name := range names {
		f.Arguments = append(f.Arguments, Argument{Name: name})
	}
	for _, m := range contract.TensorMaps {
		size := 1
		if Tensors[m.Argument] == "o" {
			size = 2
		}
		f.Arguments = append(f.Arguments, Argument{Tensors[m.Argument] + "_map", &Map{
			Tensor: m.Argument, ElementBytes: size, Rank: 3,
			Columns: m.InnerBytes / size, Rows: m.Rows, PagedRows: m.Rows, SwizzleBytes: m.SwizzleBytes,
		}})
	}
	return f
}

// Declared are the forms of a folder's kernel: its stages, each for the first of some architectures that it has.
func Declared(folder fs.FS, archs ...string) ([]*Form, error) {
	kernel, err := spec.Load(folder)
	if err != nil {
		return nil, err
	}
	shapes, err := kernel.Shapes(strings.Join(kernel.Run.SimShapes, ","))
	if err != nil {
		return nil, err
	}
	var forms []*Form
	for _, stage := range kernel.Stages {
		i := slices.IndexFunc(archs, func(a string) bool { return slices.Contains(stage.Archs, a) })
		if i < 0 {
			continue
		}
		f, err := newDeclared(kernel, stage.Variant(), archs[i], shapes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", stage.Name, err)
		}
		f.Folder = folder
		forms = append(forms, f)
	}
	return forms, nil
}

// newDeclared evaluates the launch that kernel.toml declares. Block, shared memory and boxes depend
// on knobs alone, but for the pages of K and V.
func newDeclared(kernel *spec.Kernel, v spec.Variant, arch string, shapes []spec.Shape) (*Form, error) {
	d, target := kernel.Declared, Target(kernel, v, arch)
	knobs := target.Knobs
	f := &Form{
		Kernel: Kernel(kernel.Name), Target: target, Cooperative: d.Cooperative, HeadDim: knobs[HeadDimKnob],
		BlocksPerMultiprocessor: knobs["BLOCKS_PER_SM"] + knobs["RESIDENT_BLOCKS"], QueryRows: max(knobs["TILE_M"], knobs["ROWS"]), StepKeys: knobs["TILE_N"],
		BF16: knobs["USE_BF16"] != 0, LinearEighths: knobs[exponentialsKnob],
		Chunks: knobs["CHUNKS"], MaxBlocks: knobs["BLOCKS"],
		HasOptions: knobs["USE_OPTIONS"] != 0, PacksHeads: knobs["USE_PACKED_HEADS"] != 0, Splits: knobs["USE_SPLITS"] != 0,
		E4M3V: knobs["USE_E4M3_PV"]+knobs["USE_V"] != 0,
	}
	if knobs["USE_E4M3_QK"] != 0 {
		f.Cache = array.E4M3
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	values := d.Values(v, shapes[0])
	f.Threads = 1
	for _, e := range d.Block {
		if e == nil {
			continue
		}
		n, err := e.Int(values)
		if err != nil {
			return nil, err
		}
		f.Threads *= n
	}
	if d.Shared != nil {
		var err error
		if f.SharedBytes, err = d.Shared.Int(values); err != nil {
			return nil, err
		}
	}
	args, err := d.ArgsFor(values)
	if err != nil {
		return nil, err
	}
	for _, arg := range args {
		a := Argument{Name: arg.Name}
		if arg.Role == spec.Map {
			if a.Map, err = newMap(d, args[arg.Map.Arg], arg.Map, v, shapes); err != nil {
				return nil, fmt.Errorf("%s: %w", a.Name, err)
			}
		}
		if arg.Name == "k" && (f.Kernel == Decode || f.Kernel == Warp && arg.Type == array.E4M3) {
			f.Cache = arg.Type
		}
		f.Arguments = append(f.Arguments, a)
	}
	return f, nil
}

// Check refuses a form that the libraries cannot launch, or without the knobs that they need to.
func (f *Form) Check() error {
	if f.Kernel == DenseKernel {
		return f.checkDense()
	}
	needed, known := knobsOf[f.Kernel]
	if !known {
		return fmt.Errorf("the library cannot launch the kernel %q", f.Kernel)
	}
	for _, knob := range needed {
		mayBeZero := strings.HasPrefix(knob, "USE_") || knob == exponentialsKnob
		if value, has := f.Target.Knobs[knob]; !has || value < 1 && !mayBeZero {
			return fmt.Errorf("it has no knob %s, which the library needs for its launch", knob)
		}
	}
	return nil
}

func (f *Form) checkDense() error {
	switch {
	case f.HeadDim == 0:
		return fmt.Errorf("it has no knob %s", HeadDimKnob)
	case f.Threads == 0:
		return errors.New("it has no launch contract; the library can launch attention kernels only")
	case len(f.Maps()) > MaxMaps:
		return fmt.Errorf("it has %d tensor maps, and the library passes at most %d", len(f.Maps()), MaxMaps)
	}
	return nil
}

// newMap is a tensor map of an argument of a declared kernel. Its box is the same for all shapes without pages, and
// that of shapes with pages follows from the keys of a page. Where heads are packed, a launch derives
// that of q.
func newMap(d *spec.Declaration, of spec.Arg, rule *spec.MapRule, v spec.Variant, shapes []spec.Shape) (*Map, error) {
	m := &Map{Tensor: slices.Index(Tensors, of.Name), ElementBytes: of.Type.Bytes(), Rank: len(of.Shape)}
	if m.Tensor < 0 {
		return nil, fmt.Errorf("it describes %s; the library has maps of %s", of.Name, strings.Join(Tensors, ", "))
	}
	pages, pageSize, packed := slices.Index(d.Axes, "pages"), slices.Index(d.Axes, "page_size"), slices.Index(d.Axes, "packed")
	boxes := map[int]int{} // rows, by the keys of a page
	for _, s := range shapes {
		values := d.Values(v, s)
		if packed >= 0 && values[packed] > 1 {
			continue
		}
		columns, err := rule.Box[0].Int(values)
		if err != nil {
			return nil, err
		}
		rows, err := rule.Box[1].Int(values)
		if err != nil {
			return nil, err
		}
		swizzle, err := rule.SwizzleFor(values)
		if err != nil {
			return nil, err
		}
		var pageKeys int // 0 without pages
		if pages >= 0 && values[pages] > 0 && m.isKV() {
			pageKeys = int(values[pageSize])
		}
		bytes := 16 << tensormap.EnumValue(swizzle, tensormap.Swizzles) &^ 16 // none is 0
		known, seen := boxes[pageKeys]
		if seen && known != rows || m.Columns != 0 && (m.Columns != columns || m.SwizzleBytes != bytes) {
			return nil, fmt.Errorf("its box depends on the shape: %s", s)
		}
		boxes[pageKeys], m.Columns, m.SwizzleBytes = rows, columns, bytes
	}
	return m, m.setRows(boxes)
}

// setRows sets the rows of boxes, which are by the keys of a page; 0 for no pages.
func (m *Map) setRows(boxes map[int]int) error {
	m.Rows = boxes[0]
	delete(boxes, 0)
	for _, rows := range boxes {
		m.PagedRows = max(m.PagedRows, rows)
	}
	for keys, rows := range boxes {
		if rows != m.pageBox(keys) {
			return fmt.Errorf("its box has %d rows of pages of %d keys, and %d of others", rows, keys, m.PagedRows)
		}
	}
	if m.PagedRows == 0 {
		m.PagedRows = m.Rows
	}
	return nil
}
