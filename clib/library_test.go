package clib

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
	"attune/kernels"
)

// workshop is a folder for everything that the tests compile once.
var workshop string

func TestMain(m *testing.M) {
	var err error
	if workshop, err = os.MkdirTemp("", "clib"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(workshop)
	os.Exit(code)
}

// shippedLibrary is stage7 with the shipped PTX.
func shippedLibrary(t *testing.T) Library {
	t.Helper()
	l, err := loadShipped()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var loadShipped = sync.OnceValues(func() (Library, error) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		return Library{}, err
	}
	plan, err := NewPlan(kernel, kernels.SDPA(), kernel.Selection("stage7"), []int{0})
	if err != nil {
		return Library{}, err
	}
	var images []*toolchain.Image
	for _, item := range plan.Items {
		image, _, err := toolchain.NewBuilder(plan.Folders[item.Folder], nil, "").Build(context.Background(), item.Target)
		if err != nil {
			return Library{}, err
		}
		images = append(images, image)
	}
	return plan.Library(images, "1.2.3+test"), nil
})

// compiled is a library with the probe, as a program.
type compiled struct {
	library, program, driver string
	env                      []string // of the program, beside that of the test
}

// shipped is the library of the shipped forms for the double of the driver, which reads the parameters
// of an entry function and no more: a table with the whole PTX has 27 MB. The table has no code of its
// own, and is compiled once and without sanitizers.
var shipped = sync.OnceValues(func() (compiled, error) {
	l, err := loadShipped()
	if err != nil {
		return compiled{}, err
	}
	l.Images, l.Companions = slices.Clone(l.Images), slices.Clone(l.Companions)
	for i := range l.Images {
		l.Images[i][0] = withoutBody(l.Images[i][0])
	}
	for i, companion := range l.Companions {
		form := *companion
		form.Image = withoutBody(form.Image)
		l.Companions[i] = &form
	}
	return compileLibrary("shipped", l)
})

// whole is the library of the shipped PTX, for a GPU.
var whole = sync.OnceValues(func() (compiled, error) {
	l, err := loadShipped()
	if err != nil {
		return compiled{}, err
	}
	return compileLibrary("whole", l)
})

// withoutBody is an image whose PTX ends with the parameters of its entry function.
func withoutBody(image *toolchain.Image) *toolchain.Image {
	short := *image
	start := bytes.Index(image.PTX, []byte(".visible .entry"))
	end := start + bytes.IndexByte(image.PTX[start:], ')') + 1
	body := " { ret; }"
	if bytes.Contains(image.PTX, []byte("griddepcontrol.wait")) {
		body = " { griddepcontrol.wait; ret; }"
	}
	short.PTX = slices.Concat([]byte("// "+image.Record.Variant+"\n"), image.PTX[start:end], []byte(body))
	return &short
}

// compileLibrary writes a library and compiles the probe with it, and the double of the driver.
// edit changes the generated table.
func compileLibrary(name string, l Library, edit ...string) (compiled, error) {
	dir := filepath.Join(workshop, name)
	c := compiled{library: filepath.Join(dir, "library"), program: filepath.Join(dir, "probe"), driver: filepath.Join(workshop, "driver")}
	if _, err := Write(c.library, l); err != nil {
		return c, err
	}
	path := filepath.Join(c.library, formsFile)
	text, err := os.ReadFile(path)
	if err == nil && len(edit) > 0 {
		err = os.WriteFile(path, []byte(strings.NewReplacer(edit...).Replace(string(text))), 0o644)
	}
	objects, objectsErr := sanitized()
	if err := errors.Join(err, objectsErr, gcc(c.library, append(slices.Clone(strict), "-c", "attune_sdpa_forms.c")...)); err != nil {
		return c, err
	}
	flags := slices.Concat(sanitizers, []string{"-o", c.program}, objects, []string{"attune_sdpa_forms.o", "-pthread", "-ldl", "-lm"})
	return c, gcc(c.library, flags...)
}

// sanitized are the objects of the probe and of the hand-written sources, which all libraries have in
// common, and the double of the driver. All are compiled at the same time.
var sanitized = sync.OnceValues(func() ([]string, error) {
	var objects []string
	jobs := []func() error{func() error { return compileDriver(filepath.Join(workshop, "driver")) }}
	for _, source := range append([]string{probeSource}, handWritten...) {
		object := filepath.Join(workshop, strings.TrimSuffix(filepath.Base(source), ".c")+".o")
		objects = append(objects, object)
		jobs = append(jobs, func() error {
			return gcc("src", slices.Concat(strict, sanitizers, []string{"-g", "-I.", "-c", "-o", object, source})...)
		})
	}
	results := make([]error, len(jobs))
	var group sync.WaitGroup
	for i, job := range jobs {
		group.Go(func() { results[i] = job() })
	}
	group.Wait()
	return objects, errors.Join(results...)
})

// link compiles a program with the hand-written sources of the library, and links its table.
func (c compiled) link(program, source string, flags ...string) error {
	flags = append(flags, "-I.", "-o", program, source)
	flags = append(flags, handWritten...)
	return gcc(c.library, append(flags, "attune_sdpa_forms.o", "-pthread", "-ldl", "-lm")...)
}

// handWritten are the sources of the library without its table.
var handWritten = []string{"attune_sdpa.c", "attune_explain.c", "attune_attention.c", "attune_warp.c", "attune_warp8.c", "attune_selection.c", "attune_quantize.c", "attune_tensor.c", "attune_driver.c"}

var (
	probeSource, _  = filepath.Abs("testdata/probe.c")
	driverSource, _ = filepath.Abs("testdata/libcuda.c")
)

// compileDriver compiles the double of libcuda.so.1 into a folder.
func compileDriver(dir string, flags ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return gcc(dir, slices.Concat(strict, flags, []string{"-fPIC", "-shared", "-pthread", "-o", "libcuda.so.1", driverSource})...)
}

func gcc(dir string, args ...string) error {
	cmd := exec.Command("gcc", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// shippedProbe compiles the shipped library, or skips the test.
func shippedProbe(t *testing.T) compiled {
	t.Helper()
	needGCC(t)
	c, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask runs the probe on lines and returns the lines that it prints.
func (c compiled) ask(t *testing.T, lines ...string) []string {
	t.Helper()
	cmd := exec.Command(c.program)
	cmd.Env = slices.Concat(os.Environ(), []string{"LD_LIBRARY_PATH=" + c.driver, "ATTUNE_CACHE=" + c.driver, "ATTUNE_SELECTION="}, c.env)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

// askEach runs the probe once on several groups of lines, each from the state that the one before has
// left, and returns the lines that it prints for each. A version separates the groups.
func (c compiled) askEach(t *testing.T, groups [][]string) [][]string {
	t.Helper()
	var lines []string
	for _, group := range groups {
		lines = append(append(lines, group...), "version")
	}
	answers := make([][]string, 1)
	for _, line := range c.ask(t, lines...) {
		if strings.HasPrefix(line, "1.2.3+test ") {
			answers = append(answers, nil)
			continue
		}
		answers[len(answers)-1] = append(answers[len(answers)-1], line)
	}
	return answers[:len(answers)-1]
}

// The statuses of attune_sdpa.h.
const (
	ok          = "0 "
	invalid     = "1 "
	unsupported = "2 "
	tooSmall    = "3 "
	noDriver    = "4 "
	failed      = "5 "
)

func TestArguments(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	tests := []argumentTest{
		{nil, ok},
		{[]string{"struct_size=8"}, invalid + "struct_size is 8; sizeof(attune_sdpa_params) is "},
		{[]string{"struct_size=312"}, invalid + "struct_size is 312; "}, // of 0.1.0, whose fields lie elsewhere
		{[]string{"struct_size=100000"}, invalid + "struct_size is 100000; "},
		// A later header appends fields. Without a value they are no option.
		{[]string{"struct_size=376"}, ok},
		{[]string{"struct_size=376", "later=1"}, unsupported + "byte 371 of attune_sdpa_params is not 0; this library knows 368 bytes of a later header"},
		// An earlier header has fewer fields: what lies behind its struct is not read.
		{[]string{"struct_size=320"}, ok},
		{[]string{"struct_size=360", "arch=7", "multiprocessors=-1"}, ok},
		{[]string{"arch=89"}, invalid + "multiprocessors is 0; it must be from 1"},
		{[]string{"multiprocessors=3"}, invalid + "arch is 0; it must be from 1"},
		{[]string{"arch=90", "multiprocessors=114"}, invalid + "arch is 90 and multiprocessors 114; device 0 of the current context is sm_90 and has 132"},
		{[]string{"struct_size=320", "precision=9", "softcap=9", "reserved=1", "alibi_stride=-1"}, ok},
		{[]string{"struct_size=328", "v_head_dim=9", "reserved=1", "alibi_stride=-1"}, ok},
		{[]string{"struct_size=336", "alibi_slopes=0x100400000000", "alibi_stride=-1", "tree_mask=0x100400000000"}, ok},
		{[]string{"reserved=1"}, invalid + "reserved is 1; it must be 0"},
		{[]string{"flags=2"}, invalid + "flags is 2; it must be 0 or ATTUNE_SDPA_TRUST_POINTERS"},
		{[]string{"heads=6", "kv_heads=4"}, invalid + "kv_heads is 4, which does not divide heads, 6"},
		{[]string{"batch=1000", "heads=1000", "kv_heads=1000"}, unsupported + "batch is 1000, kv_heads 1000, keys 512 and head_dim 64: a tensor would have more than 2^31 elements"},
		{[]string{"batch=1000", "heads=1000", "kv_heads=1000", "keys=513"}, unsupported + "batch is 1000, kv_heads 1000, keys 513 and"},
		{[]string{"dtype=0"}, invalid + "dtype is 0; it must be a value of attune_sdpa_dtype"},
		{[]string{"dtype=2"}, invalid + "descale_q is 0x100500000000; it must be NULL for a tensor in FP16 or BF16, whose factors are computed"},
		{[]string{"dtype=3", "descale_q=0"}, invalid + "descale_k is 0x100600000000; it must be NULL"},
		{[]string{"dtype=3", "descale_q=0", "descale_k=0"}, invalid + "descale_v is 0x100700000000; it must be NULL"},
		{[]string{"q_dtype=9"}, invalid + "q_dtype is 9; it must be a value of attune_sdpa_dtype"},
		{[]string{"q_dtype=2", "dtype=3"}, unsupported + "q_dtype is 2 and dtype 3; k and v in FP16 or BF16 need q in the same"},
		{[]string{"smooth_k=1"}, invalid + "smooth_k is 1; it must be 0 for k in E4M3, which is not quantised"},
		{[]string{"hadamard=1"}, invalid + "hadamard is 1; it must be 0 for q in E4M3, which is not quantised"},
		{[]string{"out_dtype=7"}, invalid + "out_dtype is 7; it must be a value of attune_sdpa_dtype"},
		{[]string{"out_dtype=1"}, unsupported + "out_dtype is ATTUNE_SDPA_E4M3, which no form"},
		{[]string{"out_dtype=3"}, ok},
		{[]string{"lse=0x100400000000"}, ok},
		{[]string{"sinks=0x100400000000"}, ok},
		{[]string{"window=128,-1"}, ok},
		{[]string{"window=511,-1"}, ok}, // no row has more keys before its own
		{[]string{"window=-1,10"}, ok},
		{[]string{"window=-1,0"}, ok}, // causal
		{[]string{"window=-1,511"}, ok},
		{[]string{"window=0,0"}, ok}, // the query's own key
		{[]string{"window=-1,-1"}, ok},
		{[]string{"window_left=128"}, invalid + "window_left is 128 and has_window 0; set has_window to 1 for a window"},
		{[]string{"window_right=-1"}, invalid + "window_right is -1 and has_window 0; "},
		{[]string{"window=-1,-3"}, invalid + "window_right is -3; it must be -1 for no limit, or at least 0"},
		{[]string{"window=-2,-1"}, invalid + "window_left is -2; it must be -1 for no limit, or at least 0"},
		{[]string{"scale=nan"}, invalid + "scale is nan; it must be finite and not negative"},
		{[]string{"scale=inf"}, invalid + "scale is inf; "},
		{[]string{"scale=-0.5"}, invalid + "scale is -0.5; "},
		{[]string{"softcap=-1"}, invalid + "softcap is -1; it must be finite and not negative"},
		{[]string{"softcap=nan"}, invalid + "softcap is nan; "},
		{[]string{"softcap=30"}, unsupported + "softcap is 30; with it q, k, v and o must all be FP16 or all BF16, without smooth_k, hadamard and"},
		{[]string{"softcap=30", "dtype=3", "out_dtype=3", "descale_q=0", "descale_k=0", "descale_v=0"}, ok},
		{[]string{"head_dim=96"}, unsupported + "head_dim is 96; the forms of this library have 64, 128, 256, and those in 16 bits multiples of 8 up to 256"},
		{[]string{"v_head_dim=-1"}, invalid + "v_head_dim is -1; it must be from 1 to 16777216"},
		{[]string{"v_head_dim=128"}, unsupported + "head_dim is 64 and v_head_dim 128; the forms in FP8 of this library have one for all tensors, and those in 16 bits multiples of 8 up to 256"},
		{[]string{"alibi_stride=8"}, invalid + "alibi_stride is 8 and alibi_slopes NULL; without slopes it is 0"},
		{[]string{"alibi_slopes=0x100400000000", "alibi_stride=7"}, invalid + "alibi_stride is 7; it must be 0 for [heads], or from heads, 8, to 2^24"},
		{[]string{"alibi_slopes=0x100400000000", "alibi_stride=-8"}, invalid + "alibi_stride is -8; "},
		{[]string{"alibi_slopes=0x100400000000"}, unsupported + "alibi_slopes is 0x100400000000; with it q, k, v and o must all be FP16 or all BF16, without smooth_k, hadamard and"},
		{inBF16("alibi_slopes=0x100400000002"), invalid + "alibi_slopes is 0x100400000002; "},
		{inBF16("alibi_slopes=0x100400000000", "alibi_stride=8", "causal=1", "window=9,-1", "softcap=3"), ok},
		{inBF16("tree_mask=0x100400000000", "causal=1"), invalid + "tree_mask is 0x100400000000 and causal 1; it must be 0, for the tree replaces it"},
		{inBF16("tree_mask=0x100400000000", "window=9,-1"), invalid + "tree_mask is 0x100400000000 and the window {9, -1}; a tree has no window"},
		{inBF16("tree_mask=0x100400000000", "queries=65"), invalid + "queries is 65; tree_mask has a bit for each, at most 64"},
		{inBF16("tree_mask=0x100400000004", "queries=64"), invalid + "tree_mask is 0x100400000004; "},
		{inBF16("tree_mask=0x100400000000", "queries=64", "window=-1,-1", "sinks=0x100400000000"), ok},
		{inBF16("tree_mask=0x100400000000", "queries=2"), ok}, // not decode
		{inBF16("tree_mask=0x100400000000", "queries=2", "out_dtype=2"), unsupported + "tree_mask is 0x100400000000; with it q, k, v and o"},
		{inBF16("tree_mask=0x100400000000", "queries=2", "hadamard=1"), unsupported + "tree_mask is 0x100400000000; with it q, k, v and o"},
		{[]string{"q_stride[0]=1", "q_stride[1]=32768", "q_stride[2]=64"}, ok}, // one batch: its stride does not matter
		{[]string{"batch=2", "k_stride[0]=262144", "k_stride[1]=32768", "k_stride[2]=64"}, ok},
		{[]string{"batch=2", "k_stride[1]=32768", "k_stride[2]=64"}, unsupported + "k_stride[0] is 0; rows may not overlap, so it must be at least head_dim, 64"},
		{[]string{"o_stride[1]=64", "o_stride[2]=512"}, ok},
		{[]string{"v_stride[1]=32768", "v_stride[2]=128"}, ok},
		{[]string{"v_stride[1]=32768", "v_stride[2]=100"}, unsupported + "v_stride[2] is 100; it must be a multiple of 16"},
		{[]string{"v_stride[1]=1099511627776", "v_stride[2]=64"}, unsupported + "v_stride[1] is 1099511627776; it must be less than 2^40 bytes"},
		{[]string{"workspace_bytes=100"}, ok},
		{[]string{"q=0x200000000000"}, ok}, // managed memory
		{[]string{"q=0x12340"}, invalid + "q is 0x12340, which is not device memory"},
		{[]string{"v=0x300000000000"}, invalid + "v is 0x300000000000, which is not device memory"},
		{[]string{"o=0x110000000000"}, invalid + "o is 0x110000000000, memory of device 1; the current context is of device 0"},
		{[]string{"descale_q=0x110000000000"}, invalid + "descale_q is 0x110000000000, memory of device 1; "},
	}
	for _, name := range []string{"batch", "heads", "kv_heads", "queries", "keys", "head_dim"} {
		for value, status := range map[string]string{"0": invalid, "-1": invalid, "16777217": unsupported} {
			tests = append(tests, argumentTest{[]string{name + "=" + value}, status + name + " is " + value + "; it must be from 1 to 16777216"})
		}
	}
	for _, name := range []string{"q", "k", "v", "o", "descale_q", "descale_k", "descale_v"} {
		alignment := 16
		if strings.HasPrefix(name, "descale") {
			alignment = 4
		}
		tests = append(tests, argumentTest{[]string{name + "=0"}, invalid + name + " is NULL"},
			argumentTest{[]string{fmt.Sprintf("%s=%#x", name, 0x100000000000+alignment)}, ok},
			argumentTest{[]string{fmt.Sprintf("%s=%#x", name, 0x100000000000+alignment/2)}, invalid +
				fmt.Sprintf("%s is %#x; it must be a multiple of %d", name, 0x100000000000+alignment/2, alignment)})
	}
	checkArguments(t, c, "forward", tests)
}

// argumentTest is a call with some fields that differ from the valid ones.
type argumentTest struct {
	set  []string // NAME=VALUE
	want string   // the status and the beginning of the error
}

// checkArguments calls a function with NULL, and once for each test.
func checkArguments(t *testing.T, c compiled, function string, tests []argumentTest) {
	t.Helper()
	lines := []string{"context 0", "function " + function, "null"}
	for _, test := range tests {
		lines = append(lines, "reset")
		for _, s := range test.set {
			lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
		}
		lines = append(lines, "call")
	}
	got := c.ask(t, lines...)
	if got[0] != invalid+"params is NULL" {
		t.Errorf("NULL: %s", got[0])
	}
	for i, test := range tests {
		if !strings.HasPrefix(got[i+1], test.want) || test.want == ok && got[i+1] != ok {
			t.Errorf("%v: got %q, want %q", test.set, got[i+1], test.want)
		}
	}
}

// pointerTests are the tests of a pointer: NULL if it is required, and its alignment and device.
func pointerTests(name string, alignment int, required bool, with ...string) []argumentTest {
	at := func(address int) []string { return append(slices.Clone(with), fmt.Sprintf("%s=%#x", name, address)) }
	const device0, device1 = 0x100000000000, 0x110000000000
	tests := []argumentTest{
		{at(device0 + alignment), ok},
		{at(device0 + alignment/2), fmt.Sprintf("%s%s is %#x; it must be a multiple of %d", invalid, name, device0+alignment/2, alignment)},
		{at(device1), fmt.Sprintf("%s%s is %#x, memory of device 1; the current context is of device 0", invalid, name, device1)},
	}
	if required {
		tests = append(tests, argumentTest{at(0), invalid + name + " is NULL"})
	}
	return tests
}

// The library accepts the shapes that the lab accepts.
func TestSizesMatchLab(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	r := rand.New(rand.NewPCG(5, 6))
	lines, shapes := []string{}, []tensor.Shape{}
	for range 500 {
		s := tensor.Shape{Batch: 1 << r.IntN(14), Heads: 1 << r.IntN(10), SeqQ: 1<<r.IntN(18) + r.IntN(2), SeqK: 1<<r.IntN(18) + r.IntN(2), HeadDim: 64}
		shapes = append(shapes, s)
		lines = append(append(lines, setShape(s)...), "form")
	}
	for i, line := range c.ask(t, lines...) {
		_, err := tensor.ParseShape(shapes[i].String())
		if accepted := strings.HasPrefix(line, "stage7"); accepted != (err == nil) {
			t.Errorf("%s: the library says %q, the lab %v", shapes[i], line, err)
		}
	}
}

func setShape(s tensor.Shape) []string {
	causal := 0
	if s.Causal {
		causal = 1
	}
	return strings.Split(fmt.Sprintf("set batch %d\nset heads %d\nset kv_heads %d\nset queries %d\nset keys %d\nset head_dim %d\nset causal %d",
		s.Batch, s.Heads, s.Heads/s.Group(), s.SeqQ, s.SeqK, s.HeadDim, causal), "\n")
}

// The addresses of the probe's arguments in the order of a kernel's parameters, with and without
// lse.
var (
	addresses    = []uint64{0x100000000000, 0x100100000000, 0x100200000000, 0x100300000000, 0x100500000000, 0x100600000000, 0x100700000000}
	lseAddresses = slices.Insert(slices.Clone(addresses), 4, 0x100400000000)
)

// wantLaunch is the line of the double for a job of the lab.
func wantLaunch(job device.Job, context string, lse bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "launch %s grid %d %d %d block %d %d %d shared %d cluster %d %d %d stream 0x77", context, job.Grid[0], job.Grid[1], job.Grid[2],
		job.Block[0], job.Block[1], job.Block[2], job.DynamicSharedBytes, job.Cluster[0], job.Cluster[1], job.Cluster[2])
	pointers := addresses
	if lse {
		pointers = lseAddresses
	}
	for i, arg := range job.Args {
		value := arg.Scalar
		switch {
		case arg.TensorMap != nil:
			value = packMap(arg.TensorMap, pointers[arg.TensorMap.Arg])
		case i < len(pointers):
			value = binary.LittleEndian.AppendUint64(nil, pointers[i])
		}
		fmt.Fprintf(&text, " %x", value)
	}
	return text.String()
}

// packMap is a tensor map as the double encodes it.
func packMap(m *device.TensorMap, address uint64) []byte {
	data := binary.LittleEndian.AppendUint64(nil, address)
	for i := range 3 {
		stride := 0
		if i < len(m.Strides) {
			stride = m.Strides[i]
		}
		data = binary.LittleEndian.AppendUint64(data, uint64(stride))
	}
	var boxes, ones []byte
	for i := range 4 {
		if i >= len(m.Dims) {
			data = binary.LittleEndian.AppendUint32(data, 0)
			boxes, ones = append(boxes, 0), append(ones, 0)
			continue
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(m.Dims[i]))
		boxes, ones = append(boxes, byte(m.Box[i]-1)), append(ones, 1)
	}
	data = append(append(append(data, boxes...), ones...), byte(len(m.Dims)))
	for _, n := range []int{
		tensormap.EnumValue(m.Type, tensormap.Types), tensormap.EnumValue(m.Interleave, tensormap.Interleaves),
		tensormap.EnumValue(m.Swizzle, tensormap.Swizzles), tensormap.EnumValue(m.L2Promotion, tensormap.Promotions), tensormap.EnumValue(m.OOB, tensormap.OOBs),
	} {
		data = append(data, byte(n))
	}
	return append(data, make([]byte, tensormap.Bytes-len(data))...)
}

// compareLaunches compares the launches of the library with the jobs of the lab, for shapes and an
// output.
func compareLaunches(t *testing.T, c compiled, l Library, output int, shapes []tensor.Shape) {
	t.Helper()
	lines := []string{"context 0", "reset"}
	if output&BF16 != 0 {
		lines = append(lines, "set out_dtype 3")
	}
	if output&LSE != 0 {
		lines = append(lines, "set lse 0x100400000000")
	}
	for _, s := range shapes {
		lines = append(append(lines, setShape(s)...), "form", "call 0x77")
	}
	answers := c.ask(t, append(lines, "print")...)
	var launches []string
	for _, line := range answers[2*len(shapes):] {
		if !strings.HasPrefix(line, "load") {
			launches = append(launches, line)
		}
	}
	if len(launches) != len(shapes) {
		t.Fatalf("%d launches for %d shapes: %s", len(launches), len(shapes), strings.Join(answers[:min(4, len(answers))], "\n"))
	}
	for i, s := range shapes {
		choice, err := l.Selection.Choose(s)
		if err != nil {
			t.Fatal(err)
		}
		index := slices.IndexFunc(l.Selection.Choices, func(other spec.Choice) bool { return other.When == choice.When })
		image := l.Images[index][output]
		if got := strings.TrimSpace(answers[2*i]); got != image.Record.Variant {
			t.Errorf("%s: the form is %s, want %s", s, got, image.Record.Variant)
		}
		job := attention.Job(problem.Build{Image: image}, device.Facts{Multiprocessors: 132}, &tensor.Inputs{Shape: s})
		if want := wantLaunch(job, "11", output&LSE != 0); launches[i] != want {
			t.Errorf("%s:\ngot  %s\nwant %s", s, launches[i], want)
		}
	}
}

// The library launches what the lab launches: grid, block, shared memory and every parameter.
func TestLaunchesMatchLab(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	r := rand.New(rand.NewPCG(7, 8))
	var shapes []tensor.Shape
	for range 400 {
		shapes = append(shapes, randomShape(r))
	}
	compareLaunches(t, c, l, 0, shapes)
}

// syntheticSelection has a choice for each form of syntheticLibrary.
const syntheticSelection = `
[[selection]]
name = "s"
hypothesis = "h"
[[selection.choice]]
when = "keys == 1"
variant = "stage7b"
why = "w"
[[selection.choice]]
when = "keys == 2"
variant = "stage7b"
why = "w"
[[selection.choice]]
variant = "stage7b"
why = "w"
`

// syntheticLibrary has forms that no shipped selection has: other outputs, clusters, a map of O, and
// blocks that are not persistent for many heads.
func syntheticLibrary(t *testing.T) Library {
	t.Helper()
	l := Library{Selection: loadSelection(t, syntheticSelection), Arch: "sm_90a", Version: "1"}
	maps := [][]toolchain.TensorMap{
		{{Argument: 0, Rows: 64, InnerBytes: 64, SwizzleBytes: 64}, {Argument: 1, Rows: 32, InnerBytes: 32, SwizzleBytes: 32}, {Argument: 2, Rows: 8, InnerBytes: 16}, {Argument: 3, Rows: 16, InnerBytes: 128, SwizzleBytes: 128}},
		nil,
		{{Argument: 3, Rows: 16, InnerBytes: 64}},
	}
	for i, launch := range []toolchain.Launch{
		{Threads: 128, QueryRows: 64, DynamicSharedBytes: 100000, BlocksPerMultiprocessor: 2, Cluster: 16},
		{Threads: 256, QueryRows: 16, DynamicSharedBytes: 1000, Cluster: 2},
		{Threads: 96, QueryRows: 8},
	} {
		var images [Outputs]*toolchain.Image
		for output := range Outputs {
			launch.TensorMaps = maps[i]
			launch.Output, launch.LSE = toolchain.FP16, ""
			parameters := strings.Repeat(".param .u64 p,", 7)
			if output&BF16 != 0 {
				launch.Output = toolchain.BF16
			}
			if output&LSE != 0 {
				launch.LSE = toolchain.LSEInFP32
				parameters += ".param .u64 p,"
			}
			parameters += strings.Repeat(".param .u32 p,", 5) + ".param .f32 p" + strings.Repeat(",.param .align 64 .b8 p[128]", len(maps[i]))
			images[output] = &toolchain.Image{
				Record: toolchain.Record{Kernel: "sdpa", Variant: fmt.Sprintf("form%d%d", i, output), Knobs: map[string]int{"HEAD_DIM": 64}, Launch: launch},
				PTX:    []byte(".visible .entry sdpa(" + parameters + ") { ret; }"),
			}
		}
		l.Images = append(l.Images, images)
	}
	return l
}

func TestOutputsAndClusters(t *testing.T) {
	t.Parallel()
	needGCC(t)
	l := syntheticLibrary(t)
	c, err := compileLibrary("synthetic", l)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(9, 10))
	var shapes []tensor.Shape
	for i := range 60 {
		s := randomShape(r)
		s.HeadDim, s.SeqK = 64, 1+i%3
		shapes = append(shapes, s)
	}
	// More heads than the grid has in y.
	shapes = append(shapes, tensor.Shape{Batch: 400, Heads: 400, SeqQ: 1, SeqK: 3, HeadDim: 64})
	for output := range Outputs {
		compareLaunches(t, c, l, output, shapes)
	}
	got := c.ask(t, "context 0", "set batch 70000", "set heads 2", "set kv_heads 1", "set queries 1", "set keys 3", "call")
	if want := unsupported + "batch is 70000, heads 2 and kv_heads 1; the form takes at most 65535 heads in a group and 65535 K/V heads"; got[0] != want {
		t.Errorf("got %q, want %q", got[0], want)
	}
	got = c.ask(t, "context 0", "set keys 1", "set lse 0x100400000002", "call", "set lse 0x110400000000", "call", "version")
	if got[0] != invalid+"lse is 0x100400000002; it must be a multiple of 4" || got[1] != invalid+"lse is 0x110400000000, memory of device 1; the current context is of device 0" {
		t.Errorf("got %q", got)
	}
	if got[2] != "1 s sm_90a" {
		t.Errorf("the version is %q", got[2])
	}
	for _, name := range []string{"cuFuncSetAttribute"} { // of a cluster, after that of shared memory
		got = c.ask(t, "context 0", "set keys 1", "fail "+name+" 700 1", "call", "print", "call")
		if !strings.HasPrefix(got[0], failed+name+" failed with CUDA_ERROR_OF_THE_TEST (700, as requested)") || !slices.Equal(got[1:], []string{"load 11", "unload 11", ok}) {
			t.Errorf("got %q", got)
		}
	}
}

// A failure of each call of the driver is reported with its name, leaves no module behind, and does
// not spoil the next call.
func TestDriverFailures(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	for name, calls := range map[string]int{
		"cuCtxGetCurrent": 1, "cuCtxGetId": 1, "cuCtxGetDevice": 1, "cuDeviceGetAttribute": 3, "cuPointerGetAttributes": 7, "cuModuleLoadDataEx": 1,
		"cuModuleGetFunction": 1, "cuFuncSetAttribute": 1, "cuTensorMapEncodeTiled": 2, "cuLaunchKernelEx": 1,
	} {
		for after := range calls {
			got := c.ask(t, "context 0", "set queries 2048", fmt.Sprintf("fail %s 999 %d", name, after), "call", "call", "print")
			if !strings.HasPrefix(got[0], failed+name+" failed with CUDA_ERROR_OF_THE_TEST (999, as requested)") || got[1] != ok {
				t.Errorf("%s, call %d: %q", name, after, got[:2])
			}
			record := strings.Join(got[2:], "\n")
			if loads, unloads := strings.Count(record, "\nload")+strings.Count(got[2], "load 11")-strings.Count(got[2], "unload"), strings.Count(record, "unload"); loads-unloads != 1 || !strings.Contains(record, "launch") {
				t.Errorf("%s, call %d: %d loads, %d unloads:\n%.200s", name, after, loads, unloads, record)
			}
		}
	}
	got := c.ask(t, "context 0", "fail cuModuleLoadDataEx 218", "call", "fail cuLaunchKernelEx 777", "call", "fail cuModuleGetFunction 500", "set keys 4096", "call", "fail cuModuleLoadDataEx 222", "call",
		"fail cuModuleLoadDataEx 200", "call", "fail cuModuleLoadDataEx 209", "call")
	for i, want := range []string{
		"cuModuleLoadDataEx failed with CUDA_ERROR_OF_THE_TEST (218, as requested): stage7a+USE_RELAXED_LOADS=1: ptxas: line 7 is wrong",
		"cuLaunchKernelEx failed with an unknown error (777, no description)",
		"cuModuleGetFunction failed with CUDA_ERROR_OF_THE_TEST (500, as requested): stage7b",
		"cuModuleLoadDataEx failed with CUDA_ERROR_OF_THE_TEST (222, as requested): stage7b",
		"cuModuleLoadDataEx failed with CUDA_ERROR_OF_THE_TEST (200, as requested): stage7b",
		"cuModuleLoadDataEx failed with CUDA_ERROR_OF_THE_TEST (209, as requested): stage7b",
	} {
		status, isOld := failed, i >= 3 // a driver that is too old for the code is no driver
		if isOld {
			status = noDriver
		}
		if !strings.HasPrefix(got[i], status+want) || strings.HasSuffix(got[i], "; install a newer driver") != isOld {
			t.Errorf("got %q, want %q", got[i], want)
		}
	}
	got = c.ask(t, "fail cuInit 100", "call", "call", "context 0", "call")
	if !strings.HasPrefix(got[0], noDriver+"cuInit failed with CUDA_ERROR_OF_THE_TEST (100") || !strings.HasPrefix(got[1], invalid+"no CUDA context is current on this thread") || got[2] != ok {
		t.Errorf("cuInit: %q", got)
	}
}

// Without a driver the library starts, checks arguments, names forms, and says what is missing.
func TestMissingDriver(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	c.driver = t.TempDir()
	got := c.ask(t, "form", "set heads 0", "call", "reset", "call", "version")
	if strings.HasPrefix(got[2], noDriver) {
		if !strings.HasPrefix(got[2], noDriver+"NVIDIA's driver cannot be opened: libcuda.so.1: ") {
			t.Errorf("got %q", got[2])
		}
	} else {
		t.Log("this machine has a driver, so that it cannot be missing")
	}
	if got[0] != "stage7a+USE_RELAXED_LOADS=1 " || !strings.HasPrefix(got[1], invalid+"heads is 0") || got[3] != "1.2.3+test stage7 sm_90a" {
		t.Errorf("got %q", got)
	}
}

// An older driver lacks functions. Those of CUDA 11.8 are required, and for tensor maps that of CUDA 12.
func TestOldDriver(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	c.driver = t.TempDir()
	if err := compileDriver(c.driver, "-DWITHOUT_LAUNCH"); err != nil {
		t.Fatal(err)
	}
	if got := c.ask(t, "call"); got[0] != noDriver+"libcuda.so.1 has no function cuLaunchKernelEx: the driver is older than CUDA 11.8; install a newer one" {
		t.Errorf("got %q", got)
	}
	if err := compileDriver(c.driver, "-DWITHOUT_MAPS"); err != nil {
		t.Fatal(err)
	}
	half := []string{"dtype 3", "out_dtype 3", "descale_q 0", "descale_k 0", "descale_v 0"}
	for _, name := range []string{"q", "k", "v", "o"} {
		half = append(half, fmt.Sprintf("%s %#x", name, 0x120000000000))
	}
	lines := []string{"context 0", "set queries 2048", "call", "context 2"}
	for _, field := range half {
		lines = append(lines, "set "+field)
	}
	if got := c.ask(t, append(lines, "set queries 700", "call")...); got[1] != ok || got[0] != noDriver+"libcuda.so.1 has no function cuTensorMapEncodeTiled: the driver is older than CUDA 12; install a newer one" {
		t.Errorf("got %q", got)
	}
	if err := compileDriver(c.driver, "-DWITHOUT_OPTIONAL"); err != nil {
		t.Fatal(err)
	}
	got := c.ask(t, "context 0", "call", "call", "context 1", "call", "print")
	if got[0] != ok || got[1] != ok || !strings.HasPrefix(got[2], invalid+"q is 0x100000000000, memory of device 0") || got[3] != "load 11" || len(got) != 6 {
		t.Errorf("got %.300q", got)
	}
}

// Each context has modules of its own: of two devices, and of a context that replaces another at
// the same address.
func TestContexts(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	onSecond := []string{"context 1"}
	for i, name := range []string{"q", "k", "v", "o", "descale_q", "descale_k", "descale_v"} {
		onSecond = append(onSecond, fmt.Sprintf("set %s %#x", name, addresses[i]+1<<40))
	}
	lines := slices.Concat([]string{"context 0", "call", "call"}, onSecond, []string{"call", "call", "context 0", "reset", "call", "replace 0", "call", "context 2", "call", "context -1", "call", "print"})
	got := c.ask(t, lines...)
	for i, want := range []string{ok, ok, ok, ok, ok, ok, unsupported + "q_dtype is ATTUNE_SDPA_E4M3, which sm_80 does not multiply; q must be in FP16 or BF16, and k and v in the same, or in E4M3", invalid + "no CUDA context is current"} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("call %d: %q, want %q", i, got[i], want)
		}
	}
	var events []string
	for _, line := range got[8:] {
		words := strings.Fields(line)
		events = append(events, words[0]+" "+words[1])
	}
	want := []string{"load 11", "launch 11", "launch 11", "load 12", "launch 12", "launch 12", "launch 11", "load 111", "launch 111"}
	if !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
}

// A form can be loaded while a stream is captured; the mode of the thread is restored.
func TestCapture(t *testing.T) {
	t.Parallel()
	got := shippedProbe(t).ask(t, "context 0", "capture 1", "call", "mode", "fail cuThreadExchangeStreamCaptureMode 1", "set keys 4096", "call", "mode")
	if got[0] != ok || got[1] != "0" || !strings.HasPrefix(got[2], failed+"cuModuleLoadDataEx failed with") || got[3] != "0" {
		t.Errorf("got %q", got)
	}
}

// Eight threads on two devices load each of two forms and the quantiser once per device.
func TestThreads(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	checkThreads(t, c)
	if testing.Short() { // the thread sanitizer compiles all sources again
		return
	}
	raced := c
	raced.program = filepath.Join(t.TempDir(), "probe")
	err := c.link(raced.program, probeSource, slices.Concat(strict, []string{"-fsanitize=thread", "-g"})...)
	if err != nil {
		t.Skipf("no thread sanitizer: %v", err)
	}
	if out, err := exec.Command(raced.program).CombinedOutput(); err != nil {
		t.Skipf("the thread sanitizer does not run here: %v\n%s", err, out)
	}
	checkThreads(t, raced)
}

func checkThreads(t *testing.T, c compiled) {
	t.Helper()
	got := c.ask(t, "threads 8", "print")
	counts := map[string]int{}
	for _, line := range got {
		words := strings.Fields(line)
		counts[strings.Join(words[:min(2, len(words))], " ")]++
	}
	// Threads that launch the quantiser at the same time may all ask how many blocks fit.
	if counts["occupancy 11"] < 1 || counts["occupancy 11"] > 4 || counts["occupancy 12"] < 1 || counts["occupancy 12"] > 4 {
		t.Errorf("got %v", counts)
	}
	delete(counts, "occupancy 11")
	delete(counts, "occupancy 12")
	want := map[string]int{"load 11": 3, "load 12": 3, "launch 11": 160, "launch 12": 160}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", counts, want)
	}
}
