package profile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
)

func TestMetricsAreUnique(t *testing.T) {
	keys := map[string]bool{}
	for _, m := range Metrics {
		if keys[m.Key] || m.About == "" || len(m.from) == 0 || m.Exact && m.Why != "" {
			t.Errorf("%+v is a duplicate or incomplete", m)
		}
		keys[m.Key] = true
		names := map[string]bool{}
		for _, name := range slices.Concat(m.from...) {
			if names[name] || !strings.Contains(name, "__") && !strings.HasPrefix(name, sourcePrefix) {
				t.Errorf("%s of %s is not a metric, or a duplicate", name, m.Key)
			}
			names[name] = true
		}
	}
}

func TestValuesOf(t *testing.T) {
	check := func(counters device.Counters, want Values) {
		t.Helper()
		if diff := cmp.Diff(want, ValuesOf(counters)); diff != "" {
			t.Error(diff)
		}
	}
	check(nil, Values{})
	check(device.Counters{"unknown__metric.sum": 1}, Values{})
	check(device.Counters{"gpu__time_duration.sum": 5}, Values{Time: 5})
	// A figure of several metrics is the sum of those that exist.
	check(device.Counters{"sm__inst_executed_pipe_tensor_op_hmma.sum": 3, "sm__inst_executed_pipe_tensor_op_imma.sum": 4},
		Values{"tensor_instructions": 7, "tensor_float": 3, "tensor_integer": 4})
	// wgmma instructions also count as instructions of their format.
	check(device.Counters{"sm__inst_executed_pipe_tensor_op_hmma.sum": 4, "sm__inst_executed_pipe_tensor_op_gmma.sum": 4},
		Values{"tensor_instructions": 4, "tensor_float": 4, "tensor_warpgroup": 4})
	check(device.Counters{"sm__ops_path_tensor_src_fp16_dst_fp32.sum": 8192, "sm__ops_path_tensor_src_fp8.sum": 0}, Values{TensorFLOPs: 8192})
	// The next alternative is used if the first one does not exist.
	check(device.Counters{"sm__inst_executed_pipe_tensor.sum": 9}, Values{"tensor_instructions": 9})
	check(device.Counters{"dram__bytes_read.sum": 3, "dram__bytes_write.sum": 4}, Values{DRAMBytes: 7})
	check(device.Counters{"dram__bytes.sum": 8, "dram__bytes_read.sum": 3, "dram__bytes_write.sum": 4}, Values{DRAMBytes: 8})
}

func TestRequestedMetrics(t *testing.T) {
	const gmma = "sm__inst_executed_pipe_tensor_op_gmma.sum"
	for arch, want := range map[string]bool{"sm_90": true, "sm_100": true, "sm_89": false, "sm_80": false} {
		names := requestedMetrics(arch)
		if slices.Contains(names, gmma) != want {
			t.Errorf("%s: gmma is requested: %t", arch, !want)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "sim__") || strings.Contains(name, "stalled") || strings.HasPrefix(name, sourcePrefix) {
				t.Errorf("%s is requested", name)
			}
		}
		slices.Sort(names)
		if !slices.Contains(names, "dram__bytes.sum") || !slices.Contains(names, "dram__bytes_read.sum") || len(slices.Compact(names)) != len(requestedMetrics(arch)) {
			t.Errorf("%s: %v", arch, names)
		}
	}
}

func TestRows(t *testing.T) {
	p := &Profile{
		Sim: Values{"tensor_instructions": 102, LoadConflicts: 5, storeConflicts: 0, copyConflicts: 6, wavefronts: 103, "ptx_instructions": 7},
		Ncu: Values{"tensor_instructions": 100, LoadConflicts: 0, storeConflicts: 0, copyConflicts: 4, wavefronts: 100, Time: 9, "stall_wait": 1},
	}
	rows := map[string]Row{}
	for _, r := range p.Rows() {
		rows[r.Key] = r
	}
	check := func(key string, sim, ncu, difference *float64) {
		t.Helper()
		r, ok := rows[key]
		if diff := cmp.Diff([]*float64{sim, ncu, difference}, []*float64{r.Sim, r.Ncu, r.Difference}); !ok || diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	v := func(x float64) *float64 { return &x }
	check("tensor_instructions", v(102), v(100), v(2))
	check(LoadConflicts, v(5), v(0), nil) // no percentage of 0
	check(storeConflicts, v(0), v(0), v(0))
	check(copyConflicts, v(6), v(4), v(50))
	check(Time, nil, v(9), nil)
	check(DRAMBytes, nil, nil, nil)
	check("ptx_instructions", v(7), nil, nil)
	check("stall_wait", nil, v(1), nil)
	for _, key := range []string{"stall_barrier", "ptx_move"} { // no source has them
		if _, ok := rows[key]; ok {
			t.Errorf("there is a row %s", key)
		}
	}
	keys := func(rows []Row) (all []string) {
		for _, r := range rows {
			all = append(all, r.Key)
		}
		return all
	}
	// 2 % is within the tolerance; a figure that is not exact need not agree.
	agree, differ, free := p.Agreement()
	want := [][]string{{"tensor_instructions", storeConflicts}, {LoadConflicts, wavefronts}, {copyConflicts}}
	if diff := cmp.Diff(want, [][]string{keys(agree), keys(differ), keys(free)}); diff != "" {
		t.Error(diff)
	}
	if p.Values()[Time] != 9 || (&Profile{Sim: p.Sim}).Values()["ptx_instructions"] != 7 {
		t.Error("the chip's figures do not take precedence over the simulator's")
	}
}
