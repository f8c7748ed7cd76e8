package profile

import (
	"slices"
	"strings"

	"attune/internal/device"
)

// Metric is one figure of a profile.
type Metric struct {
	Key   string `json:"key"`
	About string `json:"about"`
	Unit  string `json:"unit,omitempty"`
	// Exact means that the figure follows from the PTX: the simulator and a chip must agree on it.
	Exact bool `json:"exact"`
	// Why is the reason why the simulator and a chip need not agree on a figure that both count.
	Why string `json:"why_not_exact,omitempty"`

	// from lists alternatives of Nsight Compute's metric names. The figure is the sum of the
	// metrics that exist in the first alternative that has any.
	from [][]string
	in   origin
}

// origin is the source of a figure.
type origin int

const (
	requested origin = iota // requested from Nsight Compute by name
	inSet                   // part of Nsight Compute's full set
	simOnly                 // counted by the simulator only, on PTX
)

// The keys that code refers to.
const (
	Time          = "time_ns"
	TensorBusy    = "tensor_busy_pct"
	TensorFLOPs   = "tensor_flops"
	DRAMBytes     = "dram_bytes"
	DRAMBusy      = "dram_busy_pct"
	L2Busy        = "l2_busy_pct"
	L1Busy        = "l1_busy_pct"
	SMBusy        = "sm_busy_pct"
	ALUBusy       = "alu_busy_pct"
	FMABusy       = "fma_busy_pct"
	XUBusy        = "xu_busy_pct"
	LSUBusy       = "lsu_busy_pct"
	IssueBusy     = "issue_busy_pct"
	Occupancy     = "occupancy_pct"
	Registers     = "registers_per_thread"
	Waves         = "waves"
	LoadConflicts = "shared_load_conflicts"
	LoadUse       = "global_load_bytes_per_sector"
	StoreUse      = "global_store_bytes_per_sector"

	// WorkBytes is no figure of a profiler: the bytes that a problem must move, 0 if unknown.
	WorkBytes = "work_bytes"

	storeConflicts = "shared_store_conflicts"
	copyConflicts  = "copy_conflicts"
	wavefronts     = "shared_wavefronts"
	latency        = "cycles_per_instruction"
	stallPrefix    = "stall_"
)

// Metrics are all figures, in the order of the tables. The names are those of Nsight Compute
// 2025.3. A metric that another release or chip does not know is skipped there.
var Metrics = slices.Concat([]Metric{
	{Key: Time, About: "duration", Unit: "ns", from: single("gpu__time_duration.sum")},
	{Key: TensorBusy, About: "tensor pipe, while active", Unit: "%", from: [][]string{
		{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
		{"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"},
	}},
	exact("tensor_instructions", "tensor instructions", "inst", []string{"sm__inst_executed_pipe_tensor.sum"}, []string{
		"sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_imma.sum", "sm__inst_executed_pipe_tensor_op_dmma.sum",
	}),
	exact("tensor_float", "tensor instructions, float (HMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_hmma.sum"}),
	exact("tensor_integer", "tensor instructions, integer (IMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_imma.sum"}),
	exact("tensor_warpgroup", "tensor instructions, warpgroup (GMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_gmma.sum"}),
	inexact(TensorFLOPs, "tensor FLOPs", "", "Nsight Compute 2025.3 counts the FLOPs of wgmma only, but the instructions of all kinds", []string{
		"sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
		"sm__ops_path_tensor_src_tf32_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum", "sm__ops_path_tensor_src_int8.sum",
		"sm__ops_path_tensor_src_int4.sum", "sm__ops_path_tensor_src_int1.sum", "sm__ops_path_tensor_src_fp64.sum",
	}),
	{Key: DRAMBytes, About: "DRAM bytes", Unit: "byte", from: [][]string{{"dram__bytes.sum"}, {"dram__bytes_read.sum", "dram__bytes_write.sum"}}},
	{Key: DRAMBusy, About: "DRAM throughput", Unit: "%", from: [][]string{
		{"dram__throughput.avg.pct_of_peak_sustained_elapsed"}, {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"},
	}},
	{Key: L2Busy, About: "L2 throughput", Unit: "%", from: single("lts__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: "l2_sectors", About: "L2 sectors", Unit: "sector", from: single("lts__t_sectors.sum")},
	{Key: "l2_hit_pct", About: "L2 hit rate", Unit: "%", from: single("lts__t_sector_hit_rate.pct")},
	{Key: L1Busy, About: "L1 throughput, while active", Unit: "%", from: single("l1tex__throughput.avg.pct_of_peak_sustained_active")},
	exact("global_sectors", "global sectors, loads and stores", "sector", []string{"memory_l2_theoretical_sectors_global"}),
	exact("global_load_requests", "global load requests", "request", []string{"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"}),
	exact("global_load_sectors", "global load sectors", "sector", []string{"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"}),
	exact("global_store_requests", "global store requests", "request", []string{"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"}),
	exact("global_store_sectors", "global store sectors", "sector", []string{"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"}),
	exact("copy_requests", "cp.async requests", "request", []string{"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum"}, []string{
		"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
		"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
	}),
	exact("copy_sectors", "cp.async sectors", "sector", []string{"sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"}, []string{
		"sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
		"sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
	}),
	inexact("global_atomic_sectors", "global atomic sectors", "sector",
		"the compiler may merge the atomic operations of several lanes",
		[]string{"l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"}),
	{Key: LoadUse, About: "bytes used per loaded sector", Unit: "byte", from: single("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio")},
	{Key: StoreUse, About: "bytes used per stored sector", Unit: "byte", from: single("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio")},
	exact(LoadConflicts, "shared load conflicts", "", []string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"}),
	exact("matrix_load_conflicts", "shared load conflicts of ldmatrix", "",
		[]string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"}),
	exact(storeConflicts, "shared store conflicts", "", []string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"},
		[]string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"}),
	inexact(copyConflicts, "cp.async conflicts", "",
		"a copy may wait for the banks of the cache it reads from, which depends on other requests in flight",
		[]string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"},
		[]string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"}),
	exact(wavefronts, "shared wavefronts", "", []string{"memory_l1_wavefronts_shared"}, []string{"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}),
	exact("shared_load_wavefronts", "shared wavefronts of loads", "", []string{"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"}),
	inexact("shared_store_wavefronts", "shared wavefronts of stores", "",
		"the chip counts a store again when another unit interrupts it",
		[]string{"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}),
	exact("bulk_load_bytes", "bytes loaded by bulk copies", "byte", []string{"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}),
	exact("bulk_store_bytes", "bytes stored by bulk copies", "byte", []string{
		"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum",
	}),
	{Key: "instructions", About: "warp instructions", Unit: "inst", from: single("smsp__inst_executed.sum")},
	{Key: IssueBusy, About: "issue slots, while active", Unit: "%", from: single("smsp__issue_active.avg.pct_of_peak_sustained_active")},
	{Key: SMBusy, About: "busiest unit of the SMs", Unit: "%", from: single("sm__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: ALUBusy, About: "ALU pipe, while active", Unit: "%", from: single("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active")},
	{Key: FMABusy, About: "FMA pipe, while active", Unit: "%", from: single("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")},
	{Key: XUBusy, About: "XU pipe, while active", Unit: "%", from: single("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active")},
	{Key: LSUBusy, About: "LSU pipe, while active", Unit: "%", from: single("sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"), in: inSet},
	{Key: Occupancy, About: "occupancy", Unit: "%", from: single("sm__warps_active.avg.pct_of_peak_sustained_active")},
	{Key: Registers, About: "registers per thread", from: single("launch__registers_per_thread")},
	{Key: Waves, About: "waves of blocks", from: single("launch__waves_per_multiprocessor")},
	{
		Key: latency, About: "cycles between instructions of a warp", Unit: "cycle", from: single("smsp__average_warp_latency_per_inst_issued.ratio"),
		in: inSet,
	},
}, stalls(), []Metric{
	simulated("ptx_instructions", "PTX warp instructions", "inst", "sim__inst_executed.sum"),
	simulated("ptx_integer", "... integer", "inst", "sim__inst_executed_class_integer.sum"),
	simulated("ptx_float", "... float", "inst", "sim__inst_executed_class_float.sum"),
	simulated("ptx_move", "... move", "inst", "sim__inst_executed_class_move.sum"),
	simulated("ptx_control", "... control", "inst", "sim__inst_executed_class_control.sum"),
	simulated("ptx_memory", "... memory", "inst", "sim__inst_executed_class_memory.sum"),
	simulated("ptx_sync", "... synchronisation", "inst", "sim__inst_executed_class_sync.sum"),
	simulated("ptx_warp", "... between lanes", "inst", "sim__inst_executed_class_warp.sum"),
	simulated("ptx_tensor", "... tensor", "inst", "sim__inst_executed_class_tensor.sum"),
	simulated("ptx_products", "PTX matrix products", "inst", "sim__inst_executed_op_mma.sum"),
	simulated("ptx_barriers", "warps at barriers", "", "sim__inst_executed_op_bar.sum"),
	simulated("ptx_waits", "mbarrier waits", "", "sim__inst_executed_op_mbarrier.sum"),
	simulated("ptx_bulk", "PTX bulk copies", "inst", "sim__inst_executed_op_bulk.sum"),
	simulated("ptx_atomics", "PTX atomics", "inst", "sim__inst_executed_op_atom.sum"),
	simulated("ptx_shared_loads", "shared load requests", "inst", "sim__inst_executed_op_shared_ld.sum"),
	simulated("ptx_shared_stores", "shared store requests", "inst", "sim__inst_executed_op_shared_st.sum"),
	simulated("ptx_global_bytes", "bytes requested of global memory", "byte", "sim__data_bytes_mem_global.sum"),
	simulated("ptx_shared_bytes", "bytes requested of shared memory", "byte", "sim__data_bytes_mem_shared.sum"),
	simulated("ptx_local_bytes", "bytes requested of local memory", "byte", "sim__data_bytes_mem_local.sum"),
	simulated("ptx_async_bytes", "bytes copied by cp.async", "byte", "sim__data_bytes_op_cp_async.sum"),
})

func single(name string) [][]string { return [][]string{{name}} }

func exact(key, about, unit string, from ...[]string) Metric {
	return Metric{Key: key, About: about, Unit: unit, Exact: true, from: from}
}

func inexact(key, about, unit, why string, from ...[]string) Metric {
	return Metric{Key: key, About: about, Unit: unit, Why: why, from: from}
}

func simulated(key, about, unit, name string) Metric {
	return Metric{Key: key, About: about, Unit: unit, from: single(name), in: simOnly}
}

// stallReasons are Nsight Compute's reasons why a warp does not issue, and their meanings.
var stallReasons = []struct{ name, about string }{
	{"long_scoreboard", "global or local memory"},
	{"short_scoreboard", "shared memory or the XU pipe"},
	{"wait", "a fixed latency"},
	{"barrier", "a barrier"},
	{"membar", "a fence"},
	{"math_pipe_throttle", "an arithmetic pipe"},
	{"mio_throttle", "the queue of shared memory"},
	{"lg_throttle", "the queue of global memory"},
	{"tex_throttle", "the queue of textures"},
	{"gmma", "wgmma"},
	{"branch_resolving", "a branch"},
	{"dispatch_stall", "the dispatcher"},
	{"drain", "stores before exit"},
	{"imc_miss", "the constant cache"},
	{"no_instruction", "the instruction cache"},
	{"sleeping", "nanosleep"},
	{"misc", "other reasons"},
	{"not_selected", "another warp that was selected"},
	{"selected", "nothing: it issues"},
}

func stalls() []Metric {
	var all []Metric
	for _, s := range stallReasons {
		all = append(all, Metric{
			Key: stallPrefix + s.name, About: "stalled by " + s.about, Unit: "cycle",
			from: single("smsp__average_warps_issue_stalled_" + s.name + "_per_issue_active.ratio"), in: inSet,
		})
	}
	return all
}

// Values are figures by key. A figure that was not measured is absent.
type Values map[string]float64

// ValuesOf computes the figures from counters with Nsight Compute's names.
func ValuesOf(counters device.Counters) Values {
	v := Values{}
	for _, m := range Metrics {
		for _, names := range m.from {
			sum, found := 0.0, false
			for _, name := range names {
				if value, ok := counters[name]; ok {
					sum, found = sum+value, true
				}
			}
			if found {
				v[m.Key] = sum
				break
			}
		}
	}
	return v
}

// Of is a figure, or nil if it was not measured.
func (v Values) Of(key string) *float64 {
	if value, ok := v[key]; ok {
		return &value
	}
	return nil
}

// hopperOnly are parts of the names of metrics that do not exist before sm_90.
var hopperOnly = []string{"_op_gmma", "_op_tma_"}

// sourcePrefix is the prefix of metrics of the source page. They are part of the full set, so they
// are not requested by name.
const sourcePrefix = "memory_"

// requestedMetrics are the metrics to request from Nsight Compute on an architecture, besides its
// full set. They include all alternatives of a figure.
func requestedMetrics(arch string) []string {
	var names []string
	for _, m := range Metrics {
		if m.in != requested {
			continue
		}
		for _, name := range slices.Concat(m.from...) {
			isNew := slices.ContainsFunc(hopperOnly, func(part string) bool { return strings.Contains(name, part) })
			if strings.HasPrefix(name, sourcePrefix) || isNew && strings.HasPrefix(arch, "sm_8") || slices.Contains(names, name) {
				continue
			}
			names = append(names, name)
		}
	}
	return names
}
