package clib

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/toolchain"
	"attune/kernels"
)

// randomProblem is a problem of attention on the addresses of the probe.
func randomProblem(r *rand.Rand) form.Problem {
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	some := func(name string) device.Address {
		return device.Address(addressOf[name]) * device.Address(pick(0, 0, 1))
	}
	types := []array.DType{array.E4M3, array.F16, array.BF16}
	plain := r.IntN(2) == 0 // without options and strides
	if plain {
		some = func(string) device.Address { return 0 }
	}
	p := form.Problem{
		Batch: pick(1, 2, 3), KVHeads: pick(1, 2, 5), Queries: pick(1, 2, 5, 17, 64, 200, 700, 4000), Keys: pick(1, 30, 64, 300, 1000, 5000), HeadDim: pick(64, 128, 256, 64, 128, 8*(1+r.IntN(33))),
		VHeadDim: pick(0, 0, 0, 0, 0, 0, 0, 8*(1+r.IntN(33))),
		Causal:   r.IntN(2) == 0, WindowLeft: -1, WindowRight: -1, Sinks: some("sinks"), LSE: some("lse"), KeyLengths: some("lengths"),
	}
	p.Heads = p.KVHeads * pick(1, 1, 2, 8)
	if plain && r.IntN(8) == 0 { // long, as the mixed kernel has them
		p.Batch, p.KVHeads, p.Heads, p.Queries, p.Keys, p.HeadDim, p.VHeadDim, p.Causal = 3, 2, 4, 800, 3200, 64, 0, false
	}
	if !plain && r.IntN(3) == 0 {
		p.WindowLeft, p.WindowRight = pick(-1, 0, 9, 128, 5000), pick(-1, 0, 3, 900)
	}
	p.K.Type = types[r.IntN(3)]
	p.Q.Type = p.K.Type
	if p.K.Type == array.E4M3 {
		p.Q.Type = types[r.IntN(3)]
	}
	p.V.Type, p.O.Type = p.K.Type, types[1+r.IntN(2)]
	p.Precision = form.Precision(r.IntN(3))
	if p.K.Type == array.E4M3 && r.IntN(8) > 0 { // 16 bits are an error
		p.Precision = form.Precision(r.IntN(2))
	}
	if !plain && r.IntN(8) == 0 {
		p.Softcap = 30
	}
	if !plain && r.IntN(8) == 0 {
		p.AlibiSlopes, p.AlibiStride = device.Address(addressOf["alibi_slopes"]), p.Heads*r.IntN(2)
	}
	if !plain && r.IntN(8) == 0 {
		p.TreeMask, p.Queries, p.Causal, p.WindowLeft, p.WindowRight = device.Address(addressOf["tree_mask"]), pick(1, 3, 17, 64), false, -1, -1
	}
	switch kind := r.IntN(6); {
	case plain:
	case kind == 0:
		p.PageTable, p.PageSize, p.Pages = device.Address(addressOf["page_table"]), pick(16, 32, 48, 64, 192, 256), 99
		p.MaxPages = (p.Keys + p.PageSize - 1) / p.PageSize
	case kind == 1:
		p.CuQueries, p.TotalQueries = device.Address(addressOf["cu_queries"]), p.Queries*p.Batch
		if r.IntN(3) > 0 {
			p.CuKeys, p.TotalKeys = device.Address(addressOf["cu_keys"]), p.Keys*p.Batch
		}
	}
	for i, t := range []*form.Tensor{&p.Q, &p.K, &p.V, &p.O} {
		t.Address = device.Address(addressOf[form.Tensors[i]])
		heads, rows := p.Heads, max(p.Queries, p.TotalQueries)
		if t == &p.K || t == &p.V {
			heads, rows = p.KVHeads, max(p.Keys, p.TotalKeys)
			if p.PageTable != 0 {
				rows = p.PageSize
			}
		}
		columns := p.HeadDim
		if t == &p.V || t == &p.O {
			columns = cmp.Or(p.VHeadDim, p.HeadDim)
		}
		t.Strides = [3]int{heads * rows * columns, rows * columns, columns}
		if !plain && r.IntN(3) == 0 { // rows before heads
			t.Strides = [3]int{heads * rows * columns, columns, heads * columns}
		}
	}
	if p.Q.Type == array.E4M3 {
		p.DescaleQ = device.Address(addressOf["descale_q"])
	}
	if p.K.Type == array.E4M3 {
		p.DescaleK, p.DescaleV = device.Address(addressOf["descale_k"]), device.Address(addressOf["descale_v"])
	}
	return p
}

// problemLines are the lines of the probe for a problem.
func problemLines(p form.Problem) []string {
	codes := map[array.DType]int{array.E4M3: 1, array.F16: 2, array.BF16: 3}
	flag := map[bool]int{true: 1}
	lines := []string{"reset", setting("window", fmt.Sprintf("%d,%d", p.WindowLeft, p.WindowRight)), setting("workspace", workspaceAddress), setting("workspace_bytes", 1<<40)}
	for name, value := range map[string]int{
		"precision": int(p.Precision), "batch": p.Batch, "heads": p.Heads, "kv_heads": p.KVHeads, "queries": p.Queries, "keys": p.Keys, "head_dim": p.HeadDim, "v_head_dim": p.VHeadDim, "causal": flag[p.Causal],
		"dtype": codes[p.K.Type], "q_dtype": codes[p.Q.Type], "out_dtype": codes[p.O.Type], "total_queries": p.TotalQueries, "total_keys": p.TotalKeys,
		"max_pages": p.MaxPages, "page_size": p.PageSize, "pages": p.Pages, "sinks": int(p.Sinks), "lse": int(p.LSE), "key_lengths": int(p.KeyLengths),
		"page_table": int(p.PageTable), "cu_queries": int(p.CuQueries), "cu_keys": int(p.CuKeys),
		"alibi_slopes": int(p.AlibiSlopes), "alibi_stride": p.AlibiStride, "tree_mask": int(p.TreeMask), "descale_q": int(p.DescaleQ), "descale_k": int(p.DescaleK), "descale_v": int(p.DescaleV),
	} {
		lines = append(lines, setting(name, value))
	}
	lines = append(lines, setting("softcap", p.Softcap))
	for i, t := range []form.Tensor{p.Q, p.K, p.V, p.O} {
		lines = append(lines, strides(form.Tensors[i]+"_stride", t.Strides[:]...)...)
	}
	return lines
}

// launchLine is the line of the double for a launch.
func launchLine(l form.Launch) string {
	var text strings.Builder
	job := l.Job
	fmt.Fprintf(&text, "launch 11 grid %d %d %d block %d %d %d shared %d cluster %d %d %d", job.Grid[0], job.Grid[1], job.Grid[2],
		job.Block[0], job.Block[1], job.Block[2], job.DynamicSharedBytes, job.Cluster[0], job.Cluster[1], job.Cluster[2])
	if job.Cooperative {
		text.WriteString(" cooperative")
	}
	text.WriteString(" stream 0x77")
	for i, arg := range job.Args {
		value := arg.Scalar
		switch {
		case arg.TensorMap != nil:
			value = packMap(arg.TensorMap, uint64(l.Addresses[arg.TensorMap.Arg]))
		case value == nil:
			value = binary.LittleEndian.AppendUint64(nil, uint64(l.Addresses[i]))
		}
		fmt.Fprintf(&text, " %x", value)
	}
	return text.String()
}

// The Go package plans and launches what the C library does: the same forms, on the same workspace,
// with the same arguments.
func TestPlansMatchGo(t *testing.T) {
	t.Parallel()
	c := shippedProbe(t)
	l := shippedLibrary(t)
	table, err := form.NewTable(l.Selection, kernels.SDPA(), kernels.Forms(), kernels.Portable(), device.Facts{Arch: "sm_90", Multiprocessors: 132})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(11, 12))
	forms, precisions := map[form.Kernel]int{}, map[string]int{}
	count := 1000
	if testing.Short() {
		count = 300
	}
	problems, lines := make([]form.Problem, count), make([][]string, count)
	for i := range problems {
		problems[i] = randomProblem(r)
		lines[i] = slices.Concat([]string{"context 0"}, problemLines(problems[i]), []string{"form", "workspace", "call 0x77", "print"})
	}
	for i, got := range c.askEach(t, lines) {
		p := problems[i]
		plan, err := table.Plan(p)
		if !strings.HasPrefix(got[2], ok) {
			status := unsupported
			if p.Precision == form.Bits16 && p.K.Type == array.E4M3 {
				status = invalid
			}
			if !strings.HasPrefix(got[2], status) || err == nil || errors.Is(err, form.ErrUnsupported) != (status == unsupported) {
				t.Errorf("problem %d, %+v: the library says %q, Go %v", i, p, got[2], err)
			}
			continue
		}
		if err != nil {
			t.Errorf("problem %d, %+v: %v", i, p, err)
			continue
		}
		name := plan.Form.Variant()
		if plan.Form.Kernel == form.DenseKernel {
			index := slices.IndexFunc(l.Images, func(images [Outputs]*toolchain.Image) bool { return images[0].Record.Variant == name })
			plan.Form = form.Dense(l.Images[index][0])
		}
		forms[plan.Form.Kernel]++
		if p.K.Type != array.E4M3 {
			precisions[fmt.Sprintf("%d, quantised %t", p.Precision, plan.Quantiser != nil)]++
		}
		want := []string{name + " ", fmt.Sprintf("%d ", plan.WorkspaceBytes), ok}
		for _, launch := range plan.Launches(workspaceAddress, device.Facts{Multiprocessors: 132}) {
			want = append(want, launchLine(launch))
		}
		// A launch of Go waits for the one before.
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "load ") })
		for i := range got {
			got[i] = strings.Replace(got[i], " dependent ", " ", 1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("problem %d, %+v:\nthe library %s\nGo          %s", i, p, strings.Join(got, "\n            "), strings.Join(want, "\n            "))
		}
	}
	for _, kernel := range []form.Kernel{form.DenseKernel, form.Decode, form.Prefill, form.Native, form.Pingpong, form.Prefill16, form.Mixed} {
		if forms[kernel] < 3 {
			t.Errorf("%d problems have a form of %s", forms[kernel], kernel)
		}
	}
	if len(precisions) != 4 || precisions["1, quantised true"] == 0 || precisions["2, quantised false"] == 0 {
		t.Errorf("problems in 16 bits by precision: %v", precisions)
	}
}
