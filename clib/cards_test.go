package clib

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/form"
	"attune/kernels"
)

// cards are the devices of the double of the driver, in its order.
var cards = []device.Facts{
	{Name: "H200", Arch: "sm_90", Multiprocessors: 132, L2Bytes: 60 << 20},
	{Name: "H100 PCIe", Arch: "sm_90", Multiprocessors: 114, L2Bytes: 50 << 20},
	{Name: "A100", Arch: "sm_80", Multiprocessors: 108, L2Bytes: 40 << 20},
	{Name: "A10", Arch: "sm_86", Multiprocessors: 72, L2Bytes: 6 << 20},
	{Name: "RTX 3090", Arch: "sm_86", Multiprocessors: 82, L2Bytes: 6 << 20},
	{Name: "L4", Arch: "sm_89", Multiprocessors: 58, L2Bytes: 48 << 20},
	{Name: "RTX 4090", Arch: "sm_89", Multiprocessors: 128, L2Bytes: 72 << 20},
	{Name: "RTX 5090", Arch: "sm_120", Multiprocessors: 170, L2Bytes: 96 << 20},
	{Name: "T4", Arch: "sm_75", Multiprocessors: 40, L2Bytes: 4 << 20},
	{Name: "B200", Arch: "sm_100", Multiprocessors: 148, L2Bytes: 126 << 20},
	{Name: "GB10", Arch: "sm_121", Multiprocessors: 48, L2Bytes: 24 << 20},
	{Name: "RTX A6000", Arch: "sm_86", Multiprocessors: 84, L2Bytes: 6 << 20},
	{Name: "L40S", Arch: "sm_89", Multiprocessors: 142, L2Bytes: 96 << 20},
	{Name: "RTX PRO 6000", Arch: "sm_120", Multiprocessors: 188, L2Bytes: 128 << 20},
}

// The cards that the kernels for Hopper are not for, and that have one.
var portableCards = []int{2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13}

func cardNamed(name string) int {
	return slices.IndexFunc(cards, func(c device.Facts) bool { return c.Name == name })
}

// onCard are the lines of the probe for a problem whose memory is that of a card.
func onCard(card int, p form.Problem) []string {
	lines := problemLines(p)
	for name, address := range addressOf {
		if name == "workspace" {
			continue
		}
		field := map[string]string{"lengths": "key_lengths"}[name]
		if field == "" {
			field = name
		}
		set := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "set "+field+" ") })
		if set >= 0 && !strings.HasSuffix(lines[set], " 0") || slices.Contains(form.Tensors, name) {
			lines = append(lines, setting(field, int(address)+card<<40))
		}
	}
	return append(lines, setting("workspace", workspaceAddress+card<<40))
}

// The form of each card for a list of problems, or why there is none.
func TestCards(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	ampere := []string{"A100", "A10", "RTX 3090", "RTX A6000"}
	e4m3 := []string{"L4", "RTX 4090", "L40S", "RTX 5090", "RTX PRO 6000", "GB10"} // with products of E4M3
	all := slices.Concat(ampere, e4m3, []string{"B200"})
	of100 := []string{"A10", "RTX 3090", "RTX A6000", "L4", "RTX 4090", "L40S", "RTX 5090", "RTX PRO 6000", "GB10"} // KB
	few := inBF16("heads=16", "kv_heads=16", "queries=200", "keys=2000", "head_dim=128")
	for _, test := range []struct {
		cards    []string
		settings []string
		want     string
	}{
		// Where shared memory has room for one block of four warps, there are two smaller ones, or one of eight.
		{[]string{"A100", "A10", "RTX 3090", "L4", "RTX 4090", "RTX 5090", "GB10"}, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=128", "causal=1"), "warp_d128_n32 "},
		{[]string{"B200"}, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=128", "causal=1"), "warp_d128 "},
		{[]string{"A100", "B200"}, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=64"), "warp_d64 "},
		{of100, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=64"), "warp_d64_s2 "},
		{append(of100, "A100"), inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=256"), "warp_d256_w8 "},
		{[]string{"B200"}, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=256"), "warp_d256 "},
		{of100, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=96"), "warp_d96_n32 "},
		{[]string{"A100", "B200"}, inBF16("heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=96"), "warp_d96 "},
		{[]string{"L4", "A100"}, inBF16("dtype=2", "out_dtype=2", "heads=64", "kv_heads=8", "queries=4096", "keys=4096", "head_dim=128"), "warp_d128_n32_fp16 "},
		// 32 tiles of 128 rows, or 64 of 64, of which 100 KB hold two with steps of 32 keys.
		{[]string{"A100", "A10", "RTX 3090", "RTX 4090", "B200"}, few, "warp_d128_m64 "},
		{[]string{"L4", "RTX 5090", "GB10"}, few, "warp_d128_options_n32 "},
		// In 8 bits.
		{e4m3, nil, "f8_d64_fp16 "},
		{e4m3, []string{"head_dim=128", "out_dtype=3", "heads=16", "kv_heads=2", "causal=1", "lse=0x100400000000"}, "f8_d128 "},
		{ampere, nil, "NULL q_dtype is ATTUNE_SDPA_E4M3, which sm_8"},
		{all, []string{"key_lengths=0x101000000000"}, "NULL no form of 8 bits of this library for sm_"},
		{[]string{"B200"}, []string{"head_dim=80"}, "NULL q_dtype is 1, head_dim 80 and v_head_dim 80; no form of 8 bits"},
		{e4m3, []string{"head_dim=80"}, "NULL q_dtype is 1, head_dim 80 and v_head_dim 80; no form of 8 bits"},
		{slices.Concat(ampere, []string{"B200"}), inBF16("precision=1"), "i8f16_d64 "},
		{ampere, inBF16("dtype=2", "out_dtype=2", "head_dim=128", "precision=1", "causal=1"), "i8f16_d128_fp16 "},
		{ampere, inBF16("precision=1", "out_dtype=2"), "NULL dtype is 3 and out_dtype 2; in 8 bits on sm_8"},
		{e4m3, inBF16("precision=1", "head_dim=96", "lse=0x100400000000"), "i8f8_d96 "},
		{e4m3, inBF16("precision=1", "head_dim=256", "out_dtype=2"), "i8f8_d256_fp16 "},
		{e4m3, inBF16("dtype=2", "smooth_k=1", "lse=0x100400000000"), "i8f8_d64 "},
		{ampere, inBF16("smooth_k=1", "lse=0x100400000000"), "i8f16_d64 "},
		{all, inBF16("precision=1", "sinks=0x100400000000"), "NULL no form of 8 bits of this library for sm_"},
		{all, inBF16("precision=1", "softcap=30"), "NULL no form of 8 bits of this library for sm_"},
		{all, inBF16("precision=1", "head_dim=72"), "NULL q_dtype is 3, head_dim 72 and v_head_dim 72; no form of 8 bits"},
		{all, inBF16("hadamard=1"), "NULL hadamard is 1; the quantiser of this library for sm_"},
		{[]string{"T4"}, inBF16("precision=1"), "NULL the GPU is sm_75; the code of this library is for sm_80 and later"},
		{all, inBF16("out_dtype=2"), "NULL q_dtype is 3 and out_dtype 2; on sm_"},
		{all, inBF16("head_dim=264"), "NULL dtype is 3, head_dim 264 and v_head_dim 264; no form of this library for sm_"},
		// Options, other head dims, and few rows over BF16 and E4M3.
		{all, inBF16("alibi_slopes=0x100400000000"), "warp_d64_options "},
		{[]string{"A100", "A10", "RTX 5090", "RTX PRO 6000", "GB10", "B200"}, inBF16("head_dim=128", "softcap=30", "sinks=0x100400000000", "window=200,0"), "warp_d128_options "},
		{[]string{"RTX 3090", "RTX A6000", "L4", "RTX 4090", "L40S"}, inBF16("head_dim=128", "softcap=30", "sinks=0x100400000000", "window=200,0"), "warp_d128_options_n32 "},
		{[]string{"A100", "A10", "RTX 4090", "B200"}, inBF16("head_dim=72"), "warp_d128_options "},
		{[]string{"L4", "GB10"}, inBF16("head_dim=72"), "warp_d128_options_n32 "},
		{all, inBF16("head_dim=192", "v_head_dim=128"), "warp_d256_options "},
		{all, inBF16("head_dim=128", "heads=32", "queries=1", "keys=8000", "key_lengths=0x101000000000"), "warp_d128_cache "},
		{all, inBF16("head_dim=128", "heads=32", "queries=1", "keys=8000", "dtype=1", "q_dtype=3", "descale_k=0x100600000000", "descale_v=0x100700000000"), "warp_d128_cache8 "},
		// The same in FP16, and 17 to 64 rows of a K/V head.
		{all, inBF16("dtype=2", "out_dtype=2", "alibi_slopes=0x100400000000"), "warp_d64_options_fp16 "},
		{all, inBF16("dtype=2", "out_dtype=2", "head_dim=128", "heads=32", "queries=1", "keys=8000"), "warp_d128_cache_fp16 "},
		{all, inBF16("head_dim=128", "heads=32", "queries=1", "keys=8000", "dtype=1", "q_dtype=2", "out_dtype=2", "descale_k=0x100600000000", "descale_v=0x100700000000"), "warp_d128_cache8_fp16 "},
		{all, inBF16("head_dim=128", "heads=32", "kv_heads=4", "queries=4", "keys=8000"), "warp_d128_cache_m32 "},
		{all, inBF16("head_dim=64", "batch=8", "heads=128", "kv_heads=16", "queries=8", "keys=8000"), "warp_d64_cache_m64 "},
		{[]string{"T4"}, inBF16(), "NULL the GPU is sm_75; the code of this library is for sm_80 and later"},
		{[]string{"H200", "H100 PCIe"}, inBF16(), "native "},
	} {
		for _, name := range test.cards {
			card := cards[cardNamed(name)]
			lines := []string{"reset", "set arch " + strings.TrimPrefix(card.Arch, "sm_"), fmt.Sprintf("set multiprocessors %d", card.Multiprocessors)}
			for _, s := range test.settings {
				lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
			}
			got := c.ask(t, append(lines, "form", "target", "explain 0")...)
			if !strings.HasPrefix(got[0], test.want) {
				t.Errorf("%s, %v: %q, want %q", name, test.settings, got[0], test.want)
			}
			if strings.HasPrefix(got[0], "NULL") {
				continue
			}
			if want := fmt.Sprintf("%s%s %d", ok, card.Arch, card.Multiprocessors); got[1] != want {
				t.Errorf("%s: the target is %q, want %q", name, got[1], want)
			}
			where := " rows a tile, "
			switch fields := strings.Fields(got[2]); {
			case card.Arch == "sm_90" || fields[2] == "warp8" && strings.HasPrefix(fields[1], "f8"):
				where = ""
			case fields[2] == "warp8":
				where = "; q k^T in s8, p v in "
			}
			if !strings.Contains(got[2], where) {
				t.Errorf("%s: %q does not contain %q", name, got[2], where)
			}
		}
	}
}

// ATTUNE_ARCH names an earlier architecture than that of the GPU, whose forms it then runs.
func TestNamedArch(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	var call []string
	for _, s := range inBF16("head_dim=128", "queries=4096", "keys=4096") {
		call = append(call, "set "+strings.Replace(s, "=", " ", 1))
	}
	call = append(call, "context 0", "call", "form", "target")
	for named, want := range map[string][]string{
		"":      {ok, "pingpong_d128", ok + "sm_90 132"},
		"sm_80": {ok, "warp_d128 ", ok + "sm_80 132"},
		"sm_89": {ok, "warp_d128_n32 ", ok + "sm_89 132"},
		"sm_75": {invalid + "the variable ATTUNE_ARCH is sm_75: it names an architecture from sm_80 to that of the GPU, sm_90"},
		"sm_91": {invalid + "the variable ATTUNE_ARCH is sm_91"},
		"90":    {invalid + "the variable ATTUNE_ARCH is 90"},
		"sm_9x": {invalid + "the variable ATTUNE_ARCH is sm_9x"},
	} {
		c.env = []string{"ATTUNE_ARCH=" + named}
		got := c.ask(t, call...)
		for i, want := range want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("ATTUNE_ARCH=%s: answer %d is %q, want %q", named, i, got[i], want)
			}
		}
	}
	// Code for Hopper runs on no later GPU.
	c.env = []string{"ATTUNE_ARCH=sm_90"}
	got := c.ask(t, append([]string{"context 7"}, call[:len(call)-4]...)...)
	got = append(got, c.ask(t, slices.Concat(call[:len(call)-4], []string{"context 7", "call"})...)...)
	if want := invalid + "the variable ATTUNE_ARCH is sm_90, and the GPU sm_120: code for Hopper runs on no other GPU"; !strings.HasPrefix(got[len(got)-1], want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The first call is for a GPU that the library does not know yet. It computes what that GPU does, also
// where an H200 does not compute it, or only with a workspace.
func TestFirstCallOnCard(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	for _, test := range []struct {
		settings []string
		onL4     string
		onH200   string
	}{
		{inBF16("smooth_k=1", "lse=CARD0400000000"), ok, unsupported + "lse is 0x100400000000"},
		{inBF16("precision=1", "head_dim=96"), ok, unsupported + "head_dim is 96"},
		{inBF16("dtype=1", "q_dtype=3", "head_dim=80", "descale_k=CARD0600000000", "descale_v=CARD0700000000"), ok, unsupported + "head_dim is 80"},
		{inBF16("queries=9000", "keys=9000", "heads=32", "workspace=0", "workspace_bytes=0"), ok, tooSmall},
		{inBF16("precision=1", "workspace=0", "workspace_bytes=0"), tooSmall, tooSmall},
		{inBF16("workspace=CARD0800000001", "precision=1"), invalid + "workspace is ", invalid + "workspace is "},
		{inBF16("hadamard=1"), unsupported + "hadamard is 1", ok},
		{inBF16("head_dim=63"), unsupported + "the head dim of q is 63; it must be a multiple of 8", unsupported + "the head dim of q is 63; it must be a multiple of 8"},
		{inBF16("q=0", "smooth_k=1", "lse=CARD0400000000"), invalid + "q is NULL", unsupported + "lse is 0x100400000000"},
	} {
		for card, want := range map[int]string{cardNamed("L4"): test.onL4, cardNamed("H200"): test.onH200} {
			lines := []string{fmt.Sprintf("context %d", card)}
			for _, name := range form.Tensors {
				lines = append(lines, setting(name, int(addressOf[name])+card<<40))
			}
			for _, s := range test.settings {
				s = strings.Replace(s, "=0x10", fmt.Sprintf("=0x1%x", card), 1)
				lines = append(lines, "set "+strings.Replace(strings.Replace(s, "CARD", fmt.Sprintf("0x1%x", card), 1), "=", " ", 1))
			}
			for i, got := range c.ask(t, append(lines, "call", "call")...) {
				if !strings.HasPrefix(got, want) {
					t.Errorf("%v on %s, call %d: %q, want %q", test.settings, cards[card].Name, i, got, want)
				}
			}
		}
	}
}

// A driver that reports no multiprocessors is refused: the choice of a form divides by them.
func TestNoMultiprocessors(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	lines := []string{"multiprocessors 0", "context 5"}
	for _, s := range inBF16() {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	got := c.ask(t, append(lines, "call")...)
	if want := failed + "the driver reports 0 multiprocessors of device 5"; !strings.HasPrefix(got[0], want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Before the program opens the driver plans are for an H200, then for the device of the current context.
func TestPlansFollowContext(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	settings := []string{"form", "context 5"}
	for _, s := range inBF16("head_dim=128", "queries=4096", "keys=4096") {
		settings = append(settings, "set "+strings.Replace(s, "=", " ", 1))
	}
	for _, name := range form.Tensors {
		settings = append(settings, setting(name, int(addressOf[name])+5<<40))
	}
	got := c.ask(t, slices.Concat(settings, []string{"form", "call", "form", "target", "context 0", "target", "context -1", "target", "context 8", "call", "context 5", "set dtype 1", "function quantize", "call"})...)
	for i, want := range []string{"stage7a", "pingpong_d128", ok, "warp_d128_n32 ", ok + "sm_89 58", ok + "sm_90 132", ok + "sm_90 132", unsupported + "the GPU is sm_75", invalid + "q is 0x"} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("answer %d is %q, want %q", i, got[i], want)
		}
	}
}

// The quantiser and append run on each card, as code for it.
func TestQuantisersOfCards(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	const memory = "0x150000000000"
	lines := []string{"function quantize", "set mean_k 0", "set flags 1"}
	for _, name := range []string{"q", "k", "v", "y_q", "y_k", "y_v", "descale_q", "descale_k", "descale_v", "workspace"} {
		lines = append(lines, setting(name, memory))
	}
	lines = append(lines, "call", "print", "function append", "set flags 1")
	for _, name := range []string{"k", "v", "k_cache", "v_cache", "descale_k", "descale_v", "lengths"} {
		lines = append(lines, setting(name, memory))
	}
	lines = append(lines, "call", "print")
	for card, facts := range cards {
		shared, ofContext := 32768, fmt.Sprintf("launch %d ", 11+card)
		if facts.Arch == "sm_90" {
			shared = 98304
		}
		want := []string{ok, ofContext + fmt.Sprintf("grid 96 1 1 block 256 1 1 shared %d cluster 0 0 0 cooperative ", shared), ok, ofContext + "grid 2 2 1 block 128 "}
		if facts.Arch == "sm_75" {
			want = []string{unsupported + "this library was exported without the kernel quantize for sm_75", unsupported + "this library was exported without the kernel append for sm_75"}
		}
		got := c.ask(t, append([]string{fmt.Sprintf("context %d", card)}, lines...)...)
		got = slices.DeleteFunc(got, func(line string) bool {
			return strings.HasPrefix(line, "load ") || strings.HasPrefix(line, "occupancy ")
		})
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", facts.Name, got, want)
		}
	}
}

// On the cards that the kernels for Hopper are not for, the Go package plans and launches what the C
// library does too.
func TestPlansOfCardsMatchGo(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	r := rand.New(rand.NewPCG(13, 14))
	tables := map[int]*form.Table{}
	for _, card := range portableCards {
		table, err := form.NewTable(l.Selection, kernels.SDPA(), kernels.Forms(), kernels.Portable(), cards[card])
		if err != nil {
			t.Fatal(err)
		}
		tables[card] = table
	}
	problems, on, lines := make([]form.Problem, 600), make([]int, 600), make([][]string, 600)
	for i := range problems {
		p := randomProblem(r)
		if r.IntN(4) > 0 { // most problems are in 16 bits, of a head dim that has a form
			p.K.Type = []array.DType{array.F16, array.BF16}[r.IntN(2)]
			p.Q.Type, p.V.Type, p.O.Type = p.K.Type, p.K.Type, p.K.Type
			p.DescaleQ, p.DescaleK, p.DescaleV = 0, 0, 0
			p.Precision = []form.Precision{form.Auto, form.Bits16, form.FP8}[r.IntN(3)]
			if r.IntN(2) == 0 {
				p = withoutOptions(p)
			}
		}
		card := portableCards[r.IntN(len(portableCards))]
		problems[i], on[i] = p, card
		lines[i] = slices.Concat([]string{fmt.Sprintf("context %d", card)}, onCard(card, p), []string{"call 0x77", "form", "workspace", "print"})
	}
	variants := map[string]int{}
	for i, got := range c.askEach(t, lines) {
		p, card := problems[i], on[i]
		plan, err := tables[card].Plan(p)
		if !strings.HasPrefix(got[0], ok) {
			status := unsupported
			if p.Precision == form.Bits16 && p.K.Type == array.E4M3 {
				status = invalid
			}
			if !strings.HasPrefix(got[0], status) || err == nil || errors.Is(err, form.ErrUnsupported) != (status == unsupported) {
				t.Errorf("%s, problem %d, %+v: the library says %q, Go %v", cards[card].Name, i, p, got[0], err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s, problem %d, %+v: %v", cards[card].Name, i, p, err)
			continue
		}
		variants[plan.Form.Variant()]++
		want := []string{ok, plan.Form.Variant() + " ", fmt.Sprintf("%d ", plan.WorkspaceBytes)}
		for _, launch := range plan.Launches(device.Address(workspaceAddress), cards[card]) {
			want = append(want, launchLine(moved(launch, card)))
		}
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "load ") })
		for i := range got {
			got[i] = strings.Replace(got[i], fmt.Sprintf("launch %d ", 11+card), "launch 11 ", 1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, problem %d, %+v:\nthe library %s\nGo          %s", cards[card].Name, i, p, strings.Join(got, "\n            "), strings.Join(want, "\n            "))
		}
	}
	if len(variants) < 20 {
		t.Errorf("the problems have the forms %v", variants)
	}
}

// withoutOptions is a problem of forms without options.
func withoutOptions(p form.Problem) form.Problem {
	return form.Problem{
		Batch: p.Batch, Heads: p.Heads, KVHeads: p.KVHeads, Queries: p.Queries, Keys: p.Keys, HeadDim: p.HeadDim, Q: plain(p.Q), K: plain(p.K), V: plain(p.V), O: plain(p.O),
		LSE: p.LSE, Precision: p.Precision, Causal: p.Causal, WindowLeft: -1, WindowRight: -1, Scale: p.Scale, DescaleQ: p.DescaleQ, DescaleK: p.DescaleK, DescaleV: p.DescaleV,
	}
}

// plain is a contiguous tensor.
func plain(x form.Tensor) form.Tensor { return form.Tensor{Address: x.Address, Type: x.Type} }

// A selection that was measured on a GPU comes before the rule, in C and in Go, where its form computes
// the problem.
func TestMeasured(t *testing.T) {
	c := shippedProbe(t)
	l := shippedLibrary(t)
	cache := t.TempDir()
	l4 := cards[cardNamed("L4")]
	const choices = `[{"when": "queries <= 600 and not causal", "variant": "warp_d128_m64", "why": "\"fast\""}, {"when": "keys == 5", "variant": "warp_d64_m64"},
		{"variant": "warp_d96", "kept": true}, {"when": "group > 1 and batch > 2", "variant": "warp_d64_m64"}, {"variant": "warp_d128"}, {"when": "head_dim == 64 and rows <= 9 and tiles > 20", "variant": "warp_d64_m64"}, {"variant": "warp_d64"}]`
	file := func(arch string, multiprocessors int, choices string) string {
		return fmt.Sprintf(`{"schema_version": 1, "gpu": "a GPU", "probe": {"rates": [1.5, null, {}], "none": []}, "arch": %q, "multiprocessors": %d, "choices": %s}`, arch, multiprocessors, choices)
	}
	write := func(name, text string) string {
		path := filepath.Join(cache, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("selections/sm_89-58.json", file("sm_89", 58, choices))
	named := write("named.json", file("sm_89", 58, `[{"variant": "warp_d64_m64"}]`))
	other := write("other.json", file("sm_89", 128, choices))
	for _, test := range []struct {
		env, settings []string
		want          string
	}{
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=128"), "warp_d128_m64 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=128", "queries=601"), "warp_d128 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=128", "queries=64", "causal=1"), "warp_d128 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=64"), "warp_d64 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=64", "keys=5"), "warp_d64_m64 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("head_dim=64", "batch=3", "heads=16"), "warp_d64_m64 "},
		{[]string{"ATTUNE_CACHE=" + cache}, inBF16("dtype=2", "out_dtype=2", "head_dim=64"), "warp_d64_fp16 "},
		{[]string{"ATTUNE_CACHE=" + cache, "ATTUNE_SELECTION=" + named}, inBF16("head_dim=64", "queries=9000"), "warp_d64_m64 "},
		{[]string{"ATTUNE_SELECTION=" + other}, inBF16("head_dim=64", "queries=9000"), "NULL " + other + " is for sm_89 with 128 multiprocessors, and the GPU is sm_89 with 58; unset ATTUNE_SELECTION, or tune this GPU"},
		{[]string{"ATTUNE_SELECTION=" + cache}, inBF16(), "NULL the selection " + cache + " cannot be opened: it is not a regular file"},
		{[]string{"ATTUNE_SELECTION=/dev/zero"}, inBF16(), "NULL the selection /dev/zero cannot be opened: it is not a regular file"},
		{[]string{"ATTUNE_SELECTION=" + write("large", strings.Repeat(" ", 1<<20+1))}, inBF16(), "NULL the selection " + cache + "/large cannot be opened: it has more than 1 MB"},
		{[]string{"ATTUNE_SELECTION=" + write("newer", `{"schema_version": 2, "arch": "sm_89", "multiprocessors": 58}`)}, inBF16(), "NULL " + cache + "/newer has version 2, and this library reads 1; write it again by its attune tune"},
		{[]string{"ATTUNE_SELECTION=" + write("stage", file("sm_89", 58, `[{"variant": "warp_d65"}]`))}, inBF16(), "NULL " + cache + "/stage chooses warp_d65, which this library does not have; write it again by its attune tune"},
		{[]string{"HOME=" + cache, "ATTUNE_CACHE=", "XDG_CACHE_HOME="}, inBF16("head_dim=64", "queries=9000"), "warp_d64_s2 "},
		// A cache that cannot be opened has no selection: HOME may be another user's, or no folder.
		{[]string{"HOME=" + named, "ATTUNE_CACHE=", "XDG_CACHE_HOME="}, inBF16("head_dim=64", "queries=9000"), "warp_d64_s2 "},
		{[]string{"ATTUNE_CACHE=/" + strings.Repeat("a", 300)}, inBF16("head_dim=64", "queries=9000"), "warp_d64_s2 "},
		{[]string{"ATTUNE_SELECTION=" + named + "/none"}, inBF16(), "NULL the selection " + named + "/none cannot be opened: Not a directory"},
		{[]string{"ATTUNE_SELECTION=" + cache + "/none"}, inBF16(), "NULL the selection " + cache + "/none cannot be opened: No such file or directory"},
		{[]string{"ATTUNE_SELECTION=" + write("a", "")}, inBF16(), "NULL " + cache + "/a is no selection of attune tune for the warp kernel; write it again, or delete it"},
		{[]string{"ATTUNE_SELECTION=" + write("b", file("sm_89", 58, `[{"when": "pages > 2", "variant": "warp_d64"}]`))}, inBF16(), "NULL " + cache + "/b is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("c", file("sm_89", 58, `[{"when": "keys % 2 > 1", "variant": "warp_d64"}]`))}, inBF16(), "NULL " + cache + "/c is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("d", file("sm_89", 58, `[{"when": "keys > 1"}]`))}, inBF16(), "NULL " + cache + "/d is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("e", file("sm_89", 58, `[{"when": "keys \u003e 1", "variant": "warp_d64"}]`))}, inBF16(), "NULL " + cache + "/e is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("f", strings.Repeat("[", 1<<20))}, inBF16(), "NULL " + cache + "/f is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("none.json", file("sm_89", 58, "null"))}, inBF16("head_dim=64", "queries=9000"), "warp_d64_s2 "},
		{[]string{"ATTUNE_SELECTION=" + write("empty.json", file("sm_89", 58, "[]"))}, inBF16("head_dim=64", "queries=9000"), "warp_d64_s2 "},
		{[]string{"ATTUNE_SELECTION=" + write("nil.json", file("sm_89", 58, "nil"))}, inBF16(), "NULL " + cache + "/nil.json is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("h", file("sm_89", 58, choices)+"}")}, inBF16(), "NULL " + cache + "/h is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("i", file("sm_89", 58, choices)+" \n")}, inBF16("head_dim=128"), "warp_d128_m64 "},
		{[]string{"ATTUNE_SELECTION=" + write("j", file("sm_89", 58, `[{"when": "`+strings.Repeat(" ", 500)+`queries <= 6000", "variant": "warp_d64"}]`))}, inBF16(), "NULL " + cache + "/j is no selection"},
		{[]string{"ATTUNE_SELECTION=" + write("g", strings.TrimSuffix(file("sm_89", 58, choices), "}"))}, inBF16(), "NULL " + cache + "/g is no selection"},
	} {
		c.env = test.env
		lines := []string{"set arch 89", "set multiprocessors 58"}
		for _, s := range test.settings {
			lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
		}
		if got := c.ask(t, append(lines, "form")...); got[0] != test.want && !strings.HasPrefix(got[0], test.want) {
			t.Errorf("%v, %v: %q, want %q", test.env, test.settings, got[0], test.want)
		}
	}
	c.env = []string{"ATTUNE_CACHE=" + cache}
	lines := []string{"set arch 89", "set multiprocessors 58"}
	for _, s := range inBF16("head_dim=128") {
		lines = append(lines, "set "+strings.Replace(s, "=", " ", 1))
	}
	if got := c.ask(t, append(lines, "explain 0")...); !strings.HasSuffix(got[0], "; 64 rows a tile, 1 part of its keys, as measured") {
		t.Errorf("got %q", got)
	}
	// Problems that are drawn take the same forms in Go.
	t.Setenv("ATTUNE_CACHE", cache)
	t.Setenv(form.SelectionVariable, "")
	table, err := form.NewTable(l.Selection, kernels.SDPA(), kernels.Forms(), kernels.Portable(), l4)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(15, 16))
	variants := map[string]int{}
	for range 200 {
		p := randomProblem(r)
		p.Q.Type, p.K.Type, p.V.Type, p.O.Type, p.Precision = array.BF16, array.BF16, array.BF16, array.BF16, form.Auto
		p.DescaleQ, p.DescaleK, p.DescaleV = 0, 0, 0
		plan, err := table.Plan(p)
		want := "NULL "
		if err == nil {
			want = plan.Form.Variant() + " "
			variants[want]++
		}
		if got := c.ask(t, slices.Concat(problemLines(p), []string{"set arch 89", "set multiprocessors 58", "form"})...); !strings.HasPrefix(got[0], want) {
			t.Errorf("%+v: C has %q, Go %q", p, got[0], want)
		}
	}
	if len(variants) < 4 {
		t.Errorf("the forms are %v", variants)
	}
}

// moved is a launch on the memory of a card.
func moved(l form.Launch, card int) form.Launch {
	l.Addresses = slices.Clone(l.Addresses)
	for i, address := range l.Addresses {
		if address != 0 {
			l.Addresses[i] = address + device.Address(card)<<40
		}
	}
	return l
}
