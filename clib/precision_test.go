package clib

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"attune/internal/form"
)

// The values of attune_sdpa_precision.
const (
	precisionAuto = iota
	precisionFP8
	precision16
)

// inBF16 are the settings of a problem whose tensors are in BF16.
func inBF16(more ...string) []string {
	return append([]string{
		"dtype=3", "out_dtype=3", "descale_q=0", "descale_k=0", "descale_v=0", "workspace=0x100800000000", "workspace_bytes=1099511627776",
	}, more...)
}

func TestPrecisionArguments(t *testing.T) {
	t.Parallel()
	sixteen := func(more ...string) []string { return inBF16(append([]string{"precision=2"}, more...)...) }
	fp8 := func(more ...string) []string { return inBF16(append([]string{"precision=1"}, more...)...) }
	paged := []string{"page_table=0x101100000000", "page_size=64", "max_pages=8", "pages=9"}
	const refused = unsupported + "precision is ATTUNE_SDPA_PRECISION_16; no form in 16 bits of this library "
	checkArguments(t, shippedProbe(t), "forward", []argumentTest{
		{[]string{"precision=1"}, ok}, // E4M3
		{[]string{"precision=3"}, invalid + "precision is 3; it must be a value of attune_sdpa_precision"},
		{[]string{"precision=-1"}, invalid + "precision is -1; "},
		{[]string{"precision=2"}, invalid + "precision is ATTUNE_SDPA_PRECISION_16 and dtype ATTUNE_SDPA_E4M3; E4M3 tensors are computed in FP8"},
		{[]string{"precision=2", "q_dtype=3", "descale_q=0"}, invalid + "precision is ATTUNE_SDPA_PRECISION_16 and dtype ATTUNE_SDPA_E4M3"},
		{sixteen(), ok},
		{sixteen("smooth_k=1"), invalid + "smooth_k is 1 and precision ATTUNE_SDPA_PRECISION_16; it is an option of the quantiser"},
		{sixteen("hadamard=1"), invalid + "hadamard is 1 and precision ATTUNE_SDPA_PRECISION_16; "},
		{sixteen("head_dim=96"), ok}, // prefill16
		{inBF16("head_dim=96"), ok},
		{inBF16("head_dim=8", "queries=1"), ok},
		{inBF16("head_dim=192", "v_head_dim=128"), ok},
		{inBF16("head_dim=64", "v_head_dim=72"), ok},
		{inBF16("head_dim=256", "v_head_dim=264"), unsupported + "head_dim is 256 and v_head_dim 264; "},
		{inBF16("head_dim=264"), unsupported + "head_dim is 264; the forms of this library have 64, 128, 256, and those in 16 bits multiples of 8 up to 256"},
		{inBF16("head_dim=96", "out_dtype=2"), unsupported + "head_dim is 96; no form in 16 bits of this library has o of another type than q, k and v"},
		{inBF16("head_dim=96", "smooth_k=1"), unsupported + "head_dim is 96; no form in 16 bits of this library has options of the quantiser"},
		{fp8("head_dim=96"), unsupported + "head_dim is 96; the forms of this library have 64, 128, 256, and those in 16 bits multiples of 8 up to 256"},
		{fp8("head_dim=128", "v_head_dim=64"), unsupported + "head_dim is 128 and v_head_dim 64; the forms in FP8"},
		{inBF16("head_dim=96", "v_stride[1]=1000000", "v_stride[2]=100"), unsupported + "v_stride[2] is 100; it must be a multiple of 8"},
		{sixteen("out_dtype=2"), refused + "has o of another type than q, k and v for such sizes"},
		{sixteen("out_dtype=2", "sinks=0x100400000000"), refused + "has o of another type than q, k and v for such sizes"},
		{sixteen("sinks=0x100400000000"), ok}, // prefill16
		{sixteen("key_lengths=0x101000000000"), ok},
		{sixteen("window=9,-1"), ok},
		{sixteen("window=9,1"), ok},
		{sixteen(paged...), ok},
		{sixteen("queries=3", "window=9,1"), ok},
		{sixteen(append(slices.Clone(packed), "queries=4", "total_queries=12")...), ok},
		{sixteen("softcap=30", "head_dim=256"), ok},
		{sixteen("keys=16777216", "queries=17", "heads=64"), unsupported + "batch is 1, kv_heads 8, keys 16777216"},
		{sixteen("queries=2", "out_dtype=2", "sinks=0x100400000000", "key_lengths=0x101000000000", "window=9,-1"), ok}, // decode
		{sixteen(append(slices.Clone(paged), "queries=2")...), ok},
		{sixteen("queries=2", "sinks=0x100400000000", "o_stride[1]=64", "o_stride[2]=512"), ok}, // prefill16
		{fp8(), ok},
		{fp8("queries=2", "sinks=0x100400000000"), ok},
		{fp8("queries=2", "key_lengths=0x101000000000"), ok},
		{fp8(append(slices.Clone(paged), "queries=2")...), unsupported + "page_table is 0x101100000000; paged k and v must be in E4M3 with ATTUNE_SDPA_PRECISION_FP8: no quantiser reads pages"},
		{fp8("smooth_k=1", "hadamard=1"), ok},
		{fp8("softcap=30"), unsupported + "softcap is 30; with it q, k, v and o must all be FP16 or all BF16, without smooth_k, hadamard and ATTUNE_SDPA_PRECISION_FP8"},
	})
}

// explained is a line of the probe's explain.
type explained struct {
	form, kernel                   string
	precision, launches, workspace int
	relativeError                  float64
	reason                         string
}

func parseExplained(t *testing.T, line string) (e explained) {
	t.Helper()
	if !strings.HasPrefix(line, ok) {
		t.Fatalf("the library refuses: %q", line)
	}
	fields := strings.SplitN(strings.TrimPrefix(line, ok), " ", 7)
	if _, err := fmt.Sscan(strings.Join(fields[:6], " "), &e.form, &e.kernel, &e.precision, &e.launches, &e.workspace, &e.relativeError); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	e.reason = fields[6]
	return e
}

// explain asks for an explanation of each problem, its form and its workspace, which must agree.
func explain(t *testing.T, problems [][]string) []explained {
	t.Helper()
	c := shippedProbe(t)
	groups := make([][]string, len(problems))
	for i, settings := range problems {
		groups[i] = []string{"reset"}
		for _, s := range settings {
			groups[i] = append(groups[i], "set "+strings.Replace(s, "=", " ", 1))
		}
		groups[i] = append(groups[i], "explain 0", "form", "workspace")
	}
	all := make([]explained, len(problems))
	for i, got := range c.askEach(t, groups) {
		e := parseExplained(t, got[0])
		if got[1] != e.form+" " || slices.Contains(problems[i], "workspace=0x100800000000") && got[2] != fmt.Sprintf("%d ", e.workspace) {
			t.Errorf("%q: the explanation is %+v, the form %s, the workspace %s", problems[i], e, got[1], got[2])
		}
		all[i] = e
	}
	return all
}

// Every problem in 16 bits without an option has a form in 16 bits, also where the selection prefers FP8,
// and one in FP8.
func TestEveryPrecisionHasForms(t *testing.T) {
	t.Parallel()
	var problems [][]string
	for _, dim := range []int{64, 128, 256} {
		for _, rows := range []int{1, 100, 197, 1000, 9000, 70000} {
			for _, keys := range []int{1, 150, 2500, 20000, 1 << 20} {
				for bits := range 8 {
					heads := []int{1, 7, 40, 300}[(rows+keys+bits)%4]
					lines := inBF16(fmt.Sprintf("head_dim=%d", dim), fmt.Sprintf("queries=%d", rows), fmt.Sprintf("keys=%d", keys), fmt.Sprintf("heads=%d", 2*heads),
						fmt.Sprintf("kv_heads=%d", heads), fmt.Sprintf("causal=%d", bits&1), fmt.Sprintf("dtype=%d", 2+bits>>1&1), fmt.Sprintf("out_dtype=%d", 2+bits>>1&1),
						"lse="+[]string{"0", "0x100400000000"}[bits>>2])
					if heads*max(rows*2, keys)*dim < 1<<31 {
						problems = append(problems, lines)
					}
				}
			}
		}
	}
	with := func(precision int) [][]string {
		var all [][]string
		for _, p := range problems {
			all = append(all, append(slices.Clone(p), fmt.Sprintf("precision=%d", precision)))
		}
		return all
	}
	auto, eight, sixteen := explain(t, with(precisionAuto)), explain(t, with(precisionFP8)), explain(t, with(precision16))
	quantised := 0
	for i, p := range problems {
		if e := sixteen[i]; e.precision != precision16 || e.launches != 1 || !slices.Contains([]string{"native", "pingpong", "decode"}, e.kernel) {
			t.Errorf("%q in 16 bits: %+v", p, e)
		}
		if e := eight[i]; e.precision != precisionFP8 || e.launches != 2 {
			t.Errorf("%q in FP8: %+v", p, e)
		}
		same := sixteen[i]
		if auto[i].precision == precisionFP8 {
			same = eight[i]
			quantised++
		}
		if auto[i].form != same.form || auto[i].workspace != same.workspace {
			t.Errorf("%q: auto is %+v, and that precision %+v", p, auto[i], same)
		}
	}
	t.Logf("%d problems, of which auto quantises %d", len(problems), quantised)
	if quantised < len(problems)/20 || quantised > len(problems)*19/20 {
		t.Errorf("auto quantises %d of %d problems", quantised, len(problems))
	}
}

// Each reason names why the precision and the form were chosen.
func TestExplain(t *testing.T) {
	t.Parallel()
	long := []string{"keys=20000", "queries=20000"}
	tests := []struct {
		settings []string
		want     explained
	}{
		{[]string{"workspace=0"}, explained{"", "dense", precisionFP8, 1, 0, 0.029, "k and v are in E4M3; the tensors are contiguous, without options"}},
		{[]string{"sinks=0x100400000000"}, explained{"prefill64", "prefill", precisionFP8, 1, 0, 0.029, "k and v are in E4M3; prefill has sinks"}},
		{[]string{"o_stride[1]=64", "o_stride[2]=512"}, explained{"prefill64", "prefill", precisionFP8, 1, 0, 0.029, "k and v are in E4M3; prefill takes strides and all outputs"}},
		{inBF16(), explained{"native", "native", precision16, 1, 0, 0.0045, "FP8 would be less than 1.1x faster"}},
		{inBF16("lse=0x100400000000"), explained{"native_lse", "native", precision16, 1, 0, 0.0024, "FP8 would be less than 1.1x faster"}},
		{inBF16(append([]string{"precision=2", "head_dim=256"}, long...)...), explained{"pingpong_d256", "pingpong", precision16, 1, 0, 0.0024, "precision 16 quantises nothing"}},
		{inBF16("dtype=2", "out_dtype=2", "precision=1", "causal=1"), explained{"", "dense", precisionFP8, 2, -1, 0.056, "precision FP8 quantises; the tensors are contiguous, without options"}},
		{inBF16(append([]string{"dtype=2", "out_dtype=2", "head_dim=128"}, long...)...), explained{"", "dense", precisionFP8, 2, -1, 0.056, "FP8 is at least 1.1x faster; the tensors are contiguous, without options"}},
		{inBF16(long...), explained{"", "", precisionFP8, 2, -1, 0.056, ""}},
		{inBF16("batch=3", "heads=4", "kv_heads=2", "queries=800", "keys=3200", "precision=1"), explained{"mixed", "mixed", precisionFP8, 2, -1, 0.056, "precision FP8 quantises; mixed converts q itself"}},
		{inBF16("sinks=0x100400000000"), explained{"prefill64", "prefill", precisionFP8, 2, -1, 0.056, "the form in 16 bits with sinks is not timed yet; prefill has sinks"}},
		{inBF16("sinks=0x100400000000", "precision=2"), explained{"prefill16_d64", "prefill16", precision16, 1, 0, 0.0024, "precision 16 quantises nothing; prefill16 has sinks"}},
		{inBF16("softcap=30"), explained{"prefill16_d64", "prefill16", precision16, 1, 0, 0.0024, "only a form in 16 bits has a softcap; prefill16 has a softcap"}},
		{inBF16("head_dim=96"), explained{"prefill16_d128", "prefill16", precision16, 1, 0, 0.0024, "only forms in 16 bits have this head dim; prefill16 has it in 128 columns, not tuned"}},
		{inBF16("head_dim=192", "v_head_dim=128", "precision=2"), explained{"prefill16_d256", "prefill16", precision16, 1, 0, 0.0024, "precision 16 quantises nothing; prefill16 has it in 256 columns, not tuned"}},
		{inBF16("alibi_slopes=0x100400000000"), explained{"prefill16_d64", "prefill16", precision16, 1, 0, 0.0024, "only a form in 16 bits has ALiBi slopes; prefill16 has ALiBi slopes"}},
		{inBF16("tree_mask=0x100400000000", "queries=2"), explained{"prefill16_d64", "prefill16", precision16, 1, 0, 0.0024, "only a form in 16 bits has a tree mask; prefill16 has a tree mask"}},
		{inBF16("page_table=0x101100000000", "page_size=64", "max_pages=8", "pages=9"), explained{"prefill16_d64", "prefill16", precision16, 1, 0, 0.0024, "no quantiser reads such k and v; prefill16 has pages"}},
		{inBF16("dtype=2", "out_dtype=2", "smooth_k=1", "causal=1"), explained{"", "dense", precisionFP8, 2, -1, 0.056, "no form in 16 bits has options of the quantiser; the tensors are contiguous, without options"}},
		{inBF16("queries=2"), explained{"decode64_bf16", "decode", precision16, 1, -1, 0.0019, "nothing is quantised for few query rows; decode reads k and v once for all query rows"}},
		{
			inBF16("queries=2", "dtype=1", "q_dtype=3", "descale_k=0x100600000000", "descale_v=0x100700000000", "key_lengths=0x101000000000"),
			explained{"decode64", "decode", precisionFP8, 1, -1, 0.0019, "k and v are in E4M3; decode reads k and v once for all query rows"},
		},
	}
	problems := make([][]string, len(tests))
	for i, test := range tests {
		problems[i] = test.settings
	}
	for i, got := range explain(t, problems) {
		want := tests[i].want
		if want.form == "" {
			want.form = got.form
		}
		if want.kernel == "" {
			want.kernel, want.reason = got.kernel, got.reason
		}
		if want.workspace < 0 {
			want.workspace = got.workspace
			if want.workspace < form.ZeroedBytes {
				t.Errorf("%q: the workspace has %d bytes", tests[i].settings, got.workspace)
			}
		}
		if got != want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", tests[i].settings, got, want)
		}
	}
	got := shippedProbe(t).ask(t, "explain 16", "set queries 0", "explain 0", "reset", "explain 8", "target", "set arch 89", "set multiprocessors 58", "target")
	if !strings.HasPrefix(got[0], invalid+"struct_size is ") || got[1] != invalid+"queries is 0; it must be from 1 to 16777216" {
		t.Errorf("got %q", got)
	}
	// The struct of 0.2.0 has no target.
	if !strings.HasPrefix(got[2], ok) || got[3] != "0 sm_90 132" || got[4] != "0 sm_89 58" {
		t.Errorf("got %q", got)
	}
}

// The errors that the library states are those of the table in docs/library.md.
func TestDocumentedErrors(t *testing.T) {
	text, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("src/attune_explain.c")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Precision\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(string(source), "} errors = {")
	table, _, _ = strings.Cut(table, "}")
	table = strings.Join(strings.Fields(table), " ")
	for field := range strings.SplitSeq(table, ", ") {
		if _, figure, found := strings.Cut(field, " = "); !found || !strings.Contains(section, "| "+figure+" |") {
			t.Errorf("the table of docs/library.md has no %s", field)
		}
	}
	if strings.Count(table, " = ") != 7 {
		t.Errorf("the table of attune_explain.c is %q", table)
	}
}
