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
	// Exact says that PTX decides the figure: the simulator and a chip must agree on it.
	Exact bool `json:"exact"`
	// Why says of a figure that both count why they need not agree.
	Why string `json:"why_not_exact,omitempty"`

	// from names what the figure is made of, in Nsight Compute's words: the sum of those that are there of the first list that has any.
	from [][]string
	in   origin
}

// origin is where a figure comes from.
type origin int

const (
	asked    origin = iota // a metric that Nsight Compute must be asked for
	inSet                  // one that comes with its full set
	simAlone               // counted by the simulator, of PTX
)

// Keys that more than the tables speak of.
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
	IssueBusy     = "issue_busy_pct"
	Occupancy     = "occupancy_pct"
	Registers     = "registers_per_thread"
	Waves         = "waves"
	LoadConflicts = "shared_load_conflicts"
	LoadUse       = "global_load_bytes_per_sector"
	StoreUse      = "global_store_bytes_per_sector"

	storeConflicts = "shared_store_conflicts"
	copyConflicts  = "copy_conflicts"
	wavefronts     = "shared_wavefronts"
	latency        = "cycles_per_instruction"
	stallPrefix    = "stall_"
)

// Metrics are all figures, in the order of the tables. Names are those of Nsight Compute 2025.3; what another release or chip does not know is left out
// there.
var Metrics = slices.Concat([]Metric{
	{Key: Time, About: "duration", Unit: "ns", from: one("gpu__time_duration.sum")},
	{Key: TensorBusy, About: "tensor pipe, while active", Unit: "%", from: [][]string{
		{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
		{"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"},
	}},
	exact("tensor_instructions", "tensor instructions", "inst", []string{"sm__inst_executed_pipe_tensor.sum"}, []string{
		"sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_imma.sum", "sm__inst_executed_pipe_tensor_op_dmma.sum",
	}),
	exact("tensor_float", "tensor instructions, floats (HMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_hmma.sum"}),
	exact("tensor_integer", "tensor instructions, integers (IMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_imma.sum"}),
	exact("tensor_warpgroup", "tensor instructions, warpgroups (GMMA)", "inst", []string{"sm__inst_executed_pipe_tensor_op_gmma.sum"}),
	loose(TensorFLOPs, "tensor FLOPs", "", "Nsight Compute 2025.3 counts those of warpgroups' products alone; instructions are counted of all", []string{
		"sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
		"sm__ops_path_tensor_src_tf32_dst_fp32.sum", "sm__ops_path_tensor_src_fp8.sum", "sm__ops_path_tensor_src_int8.sum",
		"sm__ops_path_tensor_src_int4.sum", "sm__ops_path_tensor_src_int1.sum", "sm__ops_path_tensor_src_fp64.sum",
	}),
	{Key: DRAMBytes, About: "DRAM bytes", Unit: "byte", from: [][]string{{"dram__bytes.sum"}, {"dram__bytes_read.sum", "dram__bytes_write.sum"}}},
	{Key: DRAMBusy, About: "DRAM throughput", Unit: "%", from: [][]string{
		{"dram__throughput.avg.pct_of_peak_sustained_elapsed"}, {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"},
	}},
	{Key: L2Busy, About: "L2 throughput", Unit: "%", from: one("lts__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: "l2_sectors", About: "L2 sectors", Unit: "sector", from: one("lts__t_sectors.sum")},
	{Key: "l2_hit_pct", About: "L2 hit rate", Unit: "%", from: one("lts__t_sector_hit_rate.pct")},
	{Key: L1Busy, About: "L1 throughput, while active", Unit: "%", from: one("l1tex__throughput.avg.pct_of_peak_sustained_active")},
	exact("global_sectors", "global sectors, both ways", "sector", []string{"memory_l2_theoretical_sectors_global"}),
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
	loose("global_atomic_sectors", "global atomic sectors", "sector",
		"the compiler may do an atomic operation once for several lanes",
		[]string{"l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"}),
	{Key: LoadUse, About: "bytes used of a loaded sector", Unit: "byte", from: one("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio")},
	{Key: StoreUse, About: "bytes used of a stored sector", Unit: "byte", from: one("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio")},
	exact(LoadConflicts, "shared load conflicts", "", []string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"}),
	exact("matrix_load_conflicts", "shared load conflicts of ldmatrix", "",
		[]string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"}),
	exact(storeConflicts, "shared store conflicts", "", []string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"},
		[]string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"}),
	loose(copyConflicts, "cp.async conflicts", "",
		"a copy may wait for the banks of the cache that it reads from, which depends on what is in flight",
		[]string{"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"},
		[]string{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"}),
	exact(wavefronts, "shared wavefronts", "", []string{"memory_l1_wavefronts_shared"}, []string{"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}),
	exact("shared_load_wavefronts", "shared wavefronts of loads", "", []string{"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"}),
	loose("shared_store_wavefronts", "shared wavefronts of stores", "",
		"the chip counts a store again when another unit takes its turn",
		[]string{"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"}),
	exact("bulk_load_bytes", "bytes loaded by bulk copies", "byte", []string{"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"}),
	exact("bulk_store_bytes", "bytes stored by bulk copies", "byte", []string{
		"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum",
	}),
	{Key: "instructions", About: "warp instructions", Unit: "inst", from: one("smsp__inst_executed.sum")},
	{Key: IssueBusy, About: "issue slots, while active", Unit: "%", from: one("smsp__issue_active.avg.pct_of_peak_sustained_active")},
	{Key: SMBusy, About: "busiest unit of the SMs", Unit: "%", from: one("sm__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: ALUBusy, About: "ALU pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active")},
	{Key: FMABusy, About: "FMA pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")},
	{Key: XUBusy, About: "XU pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active")},
	{Key: Occupancy, About: "warps of the most there can be", Unit: "%", from: one("sm__warps_active.avg.pct_of_peak_sustained_active")},
	{Key: Registers, About: "registers a thread", from: one("launch__registers_per_thread")},
	{Key: Waves, About: "waves of blocks", from: one("launch__waves_per_multiprocessor")},
	{
		Key: latency, About: "cycles between instructions of a warp", Unit: "cycle", from: one("smsp__average_warp_latency_per_inst_issued.ratio"),
		in: inSet,
	},
}, stalls(), []Metric{
	simulated("ptx_instructions", "PTX instructions of warps", "inst", "sim__inst_executed.sum"),
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
	simulated("ptx_waits", "looks at mbarriers", "", "sim__inst_executed_op_mbarrier.sum"),
	simulated("ptx_bulk", "PTX bulk copies", "inst", "sim__inst_executed_op_bulk.sum"),
	simulated("ptx_atomics", "PTX atomics", "inst", "sim__inst_executed_op_atom.sum"),
	simulated("ptx_shared_loads", "shared load requests", "inst", "sim__inst_executed_op_shared_ld.sum"),
	simulated("ptx_shared_stores", "shared store requests", "inst", "sim__inst_executed_op_shared_st.sum"),
	simulated("ptx_global_bytes", "bytes asked of global memory", "byte", "sim__data_bytes_mem_global.sum"),
	simulated("ptx_shared_bytes", "bytes asked of shared memory", "byte", "sim__data_bytes_mem_shared.sum"),
	simulated("ptx_local_bytes", "bytes asked of local memory", "byte", "sim__data_bytes_mem_local.sum"),
	simulated("ptx_async_bytes", "bytes brought by cp.async", "byte", "sim__data_bytes_op_cp_async.sum"),
})

func one(name string) [][]string { return [][]string{{name}} }

func exact(key, about, unit string, from ...[]string) Metric {
	return Metric{Key: key, About: about, Unit: unit, Exact: true, from: from}
}

func loose(key, about, unit, why string, from ...[]string) Metric {
	return Metric{Key: key, About: about, Unit: unit, Why: why, from: from}
}

func simulated(key, about, unit, name string) Metric {
	return Metric{Key: key, About: about, Unit: unit, from: one(name), in: simAlone}
}

// stallReasons are what a warp may wait for, as Nsight Compute has them, with what they mean.
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
	{"gmma", "a product of a warpgroup"},
	{"branch_resolving", "a branch"},
	{"dispatch_stall", "the dispatcher"},
	{"drain", "stores at the end"},
	{"imc_miss", "a constant"},
	{"no_instruction", "the instruction cache"},
	{"sleeping", "itself, asleep"},
	{"misc", "something else"},
	{"not_selected", "its turn"},
	{"selected", "nothing: it issues"},
}

func stalls() []Metric {
	var all []Metric
	for _, s := range stallReasons {
		all = append(all, Metric{
			Key: stallPrefix + s.name, About: "stalled by " + s.about, Unit: "cycle",
			from: one("smsp__average_warps_issue_stalled_" + s.name + "_per_issue_active.ratio"), in: inSet,
		})
	}
	return all
}

// Values are figures by their keys. What was not measured is not there.
type Values map[string]float64

// ValuesOf finds the figures among counters by Nsight Compute's names.
func ValuesOf(counters device.Counters) Values {
	v := Values{}
	for _, m := range Metrics {
		for _, names := range m.from {
			sum, any := 0.0, false
			for _, name := range names {
				if value, ok := counters[name]; ok {
					sum, any = sum+value, true
				}
			}
			if any {
				v[m.Key] = sum
				break
			}
		}
	}
	return v
}

// Of is a figure, or nil where it was not measured.
func (v Values) Of(key string) *float64 {
	if value, ok := v[key]; ok {
		return &value
	}
	return nil
}

// hopperOnly are parts of names that architectures before sm_90 do not know.
var hopperOnly = []string{"_op_gmma", "_op_tma_"}

// sourcePrefix is what names of the source page begin with. They come with the full set and are not asked for.
const sourcePrefix = "memory_"

// toAsk are the metrics to ask Nsight Compute for on an architecture, beside its full set. Of a figure that goes by several names all are asked for.
func toAsk(arch string) []string {
	var names []string
	for _, m := range Metrics {
		if m.in != asked {
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
